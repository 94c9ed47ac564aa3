-- The wall between tenants: the id of a tenant that this login may act for, null where the tenant has no data yet.
-- session_user is the login also inside a SECURITY DEFINER function and after SET ROLE.
CREATE OR REPLACE FUNCTION tenant_of(
  p_tenant text
) RETURNS integer
LANGUAGE plpgsql STABLE AS $$
DECLARE
  id integer := (SELECT tenant_id FROM tenants WHERE name = p_tenant);
BEGIN
  IF p_tenant IS NULL OR NOT EXISTS (SELECT FROM tenant_logins WHERE login = session_user AND tenant_id IN (0, id)) THEN
    RAISE EXCEPTION 'login % is not bound to tenant %', quote_literal(session_user), quote_nullable(p_tenant)
      USING ERRCODE = 'CV001', HINT = format('SELECT convstore.bind_login(%L, %L)', session_user, p_tenant);
  END IF;
  RETURN id;
END $$;
