-- Lets a login act for a tenant; a null tenant means all of them. Again is no error.
CREATE OR REPLACE FUNCTION bind_login(
  p_login  name,
  p_tenant text
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = p_login) THEN
    RAISE EXCEPTION 'there is no login %', quote_literal(p_login)
      USING ERRCODE = 'undefined_object', HINT = format('CREATE ROLE %I LOGIN PASSWORD ...', p_login);
  END IF;
  INSERT INTO convstore.tenants (name) SELECT p_tenant WHERE p_tenant IS NOT NULL ON CONFLICT (name) DO NOTHING;
  INSERT INTO convstore.tenant_logins (login, tenant_id)
    SELECT p_login, CASE WHEN p_tenant IS NULL THEN 0 ELSE (SELECT tenant_id FROM convstore.tenants WHERE name = p_tenant) END
    ON CONFLICT DO NOTHING;
END $$;
