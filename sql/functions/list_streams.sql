-- A page of the tenant's streams in order of name.
CREATE OR REPLACE FUNCTION list_streams(
  p_tenant  text,
  p_context text,    -- null: of any context
  p_tags    jsonb,   -- null: any; else streams that have all of these
  p_after   text,    -- null: from the first name on
  p_limit   integer
) RETURNS TABLE (
  name text, context text, tags jsonb, head bigint, closed boolean, created_at timestamptz, recorded_at timestamptz,
  parent text, fork_at bigint
)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  tid integer := tenant_of(p_tenant);
BEGIN
  RETURN QUERY
    SELECT d.name, c.name, d.tags, s.head, s.closed, d.created_at, CASE WHEN s.head > 0 THEN s.recorded_at ELSE d.created_at END,
           p.name, s.fork_at
      FROM directory d JOIN contexts c USING (context_id) JOIN streams s USING (context_id, stream_id)
      LEFT JOIN streams p ON p.context_id = s.context_id AND p.stream_id = s.parent_id
     WHERE d.tenant_id = tid AND (p_after IS NULL OR d.name > p_after COLLATE "C")
       AND (p_context IS NULL OR c.name = p_context) AND (p_tags IS NULL OR d.tags @> p_tags)
     ORDER BY d.name LIMIT p_limit;
END $$;
