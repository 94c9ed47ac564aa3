-- For verification: a page of the tenant's streams with what their hashes depend on, in order of id.
CREATE OR REPLACE FUNCTION audit_streams(
  p_tenant text,
  p_stream text,     -- null: all
  p_after  bigint,   -- the last stream_id of the page before; null at first
  p_limit  integer
) RETURNS TABLE (
  context text, stream text, context_id bigint, stream_id bigint, secret bytea, origin bytea, created_at timestamptz
)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  tid integer := tenant_of(p_tenant);
BEGIN
  RETURN QUERY
    SELECT c.name, d.name, d.context_id, d.stream_id, CASE WHEN s.secret = c.secret THEN s.secret END, s.origin, d.created_at
      FROM directory d LEFT JOIN contexts c USING (context_id) LEFT JOIN streams s USING (context_id, stream_id)
     WHERE d.tenant_id = tid AND (p_after IS NULL OR d.stream_id > p_after) AND (p_stream IS NULL OR d.name = p_stream)
     ORDER BY d.stream_id LIMIT p_limit;
END $$;
