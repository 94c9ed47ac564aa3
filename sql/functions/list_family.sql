-- Every stream of a stream's context: the root that it descends from and all branches of that are among them.
CREATE OR REPLACE FUNCTION list_family(
  p_tenant text,
  p_stream text
) RETURNS TABLE (
  name text, context text, tags jsonb, head bigint, closed boolean, created_at timestamptz, recorded_at timestamptz,
  parent text, fork_at bigint
)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  tid   integer := tenant_of(p_tenant);
  place record;
BEGIN
  SELECT c.context_id, c.name INTO place
    FROM directory d JOIN contexts c USING (context_id) WHERE d.tenant_id = tid AND d.name = p_stream;
  RETURN QUERY
    SELECT s.name, place.name, d.tags, s.head, s.closed, d.created_at,
           CASE WHEN s.head > 0 THEN s.recorded_at ELSE d.created_at END, p.name, s.fork_at
      FROM streams s
      JOIN directory d ON d.tenant_id = tid AND d.name = s.name
      LEFT JOIN streams p ON p.context_id = s.context_id AND p.stream_id = s.parent_id
     WHERE s.context_id = place.context_id
     ORDER BY s.stream_id;
END $$;
