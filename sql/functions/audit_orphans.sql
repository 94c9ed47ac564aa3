-- For verification: rows of the tenant that belong to no stream of the directory, the first few; for a login that is
-- bound to all tenants, also rows of no tenant.
CREATE OR REPLACE FUNCTION audit_orphans(
  p_tenant text
) RETURNS TABLE (context_id bigint, stream_id bigint, version bigint, "position" bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, convstore, pg_temp AS $$
#variable_conflict use_column
DECLARE
  tid      integer := tenant_of(p_tenant);
  sees_all boolean := EXISTS (SELECT FROM tenant_logins l WHERE l.login = session_user AND l.tenant_id = 0);
BEGIN
  RETURN QUERY
    SELECT e.context_id, e.stream_id, e.version, e.position
      FROM events e
     WHERE (e.tenant_id = tid OR sees_all AND NOT EXISTS (SELECT FROM tenants t WHERE t.tenant_id = e.tenant_id))
       AND NOT EXISTS (SELECT FROM streams s JOIN contexts c USING (context_id)
                         JOIN directory d ON d.tenant_id = tid AND d.name = s.name
                          AND (d.context_id, d.stream_id) = (s.context_id, s.stream_id)
                        WHERE s.context_id = e.context_id AND s.stream_id = e.stream_id
                          AND d.tenant_id = tid AND c.tenant_id = tid AND s.tenant_id = tid)
     ORDER BY e.position LIMIT 10;
END $$;
