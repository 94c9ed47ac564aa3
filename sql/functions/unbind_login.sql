-- Takes a login's right to act for a tenant away; null is the right to act for all.
CREATE OR REPLACE FUNCTION unbind_login(
  p_login  name,
  p_tenant text
) RETURNS void
LANGUAGE sql AS $$
  DELETE FROM convstore.tenant_logins l
   WHERE l.login = p_login
     AND l.tenant_id = CASE WHEN p_tenant IS NULL THEN 0 ELSE (SELECT tenant_id FROM convstore.tenants WHERE name = p_tenant) END
$$;
