-- For verification: a page of the tenant's streams with what their hashes depend on, in order of id.
CREATE OR REPLACE FUNCTION audit_streams(
  p_tenant text,
  p_stream text,     -- null: all
  p_after  bigint,   -- the last stream_id of the page before; null at first
  p_limit  integer
) RETURNS TABLE (
  context text, stream text, context_id bigint, stream_id bigint, secret bytea, origin bytea, created_at timestamptz,
  own_name text, parent_id bigint, parent text, fork_at bigint, fork_control bigint,
  forks bigint[] -- where streams branch off from it
)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  tid integer := tenant_of(p_tenant);
BEGIN
  RETURN QUERY
    WITH page AS MATERIALIZED (
      SELECT * FROM directory d
       WHERE d.tenant_id = tid AND (p_after IS NULL OR d.stream_id > p_after) AND (p_stream IS NULL OR d.name = p_stream)
       ORDER BY d.stream_id LIMIT p_limit
    ), forked AS MATERIALIZED (
      SELECT f.context_id, f.parent_id, array_agg(f.fork_at) AS forks
        FROM (SELECT DISTINCT context_id FROM page) c
       CROSS JOIN LATERAL (SELECT * FROM streams s WHERE s.context_id = c.context_id OFFSET 0) f
       WHERE p_stream IS NULL AND f.parent_id IS NOT NULL GROUP BY 1, 2
    )
    SELECT c.name, d.name, d.context_id, d.stream_id, CASE WHEN coalesce(s.secret, c.secret) = c.secret THEN c.secret END,
           s.origin, d.created_at, s.name, s.parent_id, p.name, s.fork_at, s.fork_control, f.forks
      FROM page d
      LEFT JOIN contexts c USING (context_id) LEFT JOIN streams s USING (context_id, stream_id)
      LEFT JOIN streams p ON p.context_id = s.context_id AND p.stream_id = s.parent_id
      LEFT JOIN forked f ON f.context_id = d.context_id AND f.parent_id = d.stream_id
     ORDER BY d.stream_id;
END $$;
