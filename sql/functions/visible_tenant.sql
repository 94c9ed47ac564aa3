-- For the row-level policies: the tenant that the transaction's setting selects, if the login is bound to it; else null.
CREATE OR REPLACE FUNCTION visible_tenant() RETURNS integer
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, convstore, pg_temp AS $$
  SELECT t.tenant_id
    FROM tenants t
   WHERE t.name = nullif(current_setting('convstore.tenant', true), '') -- an unset setting reads '' after its first use
     AND EXISTS (SELECT FROM tenant_logins l WHERE l.login = session_user AND l.tenant_id IN (0, t.tenant_id))
$$;
