-- The wall between tenants: the id of a tenant that this login may act for, null where the tenant has no data yet.
-- session_user is the login also inside a SECURITY DEFINER function and after SET ROLE.
CREATE OR REPLACE FUNCTION tenant_of(
  p_tenant text
) RETURNS integer
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, convstore, pg_temp AS $$
DECLARE
  id integer;
BEGIN
  SELECT t.tenant_id INTO id
    FROM tenant_logins l LEFT JOIN tenants t ON t.name = p_tenant
   WHERE l.login = session_user AND (l.tenant = p_tenant OR l.tenant IS NULL)
   LIMIT 1;
  IF NOT FOUND OR p_tenant IS NULL THEN
    RAISE EXCEPTION 'login % is not bound to tenant %', quote_literal(session_user), quote_nullable(p_tenant)
      USING ERRCODE = 'CV001', HINT = format('SELECT convstore.bind_login(%L, %L)', session_user, p_tenant);
  END IF;
  RETURN id;
END $$;
