-- Takes a login's right to act for a tenant away; null is the right to act for all.
CREATE OR REPLACE FUNCTION unbind_login(
  p_login  name,
  p_tenant text
) RETURNS void
LANGUAGE sql AS $$
  DELETE FROM convstore.tenant_logins WHERE login = p_login AND tenant IS NOT DISTINCT FROM p_tenant
$$;
