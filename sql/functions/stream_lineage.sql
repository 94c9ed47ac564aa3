-- Which streams a branch's versions come from, the root's first.
CREATE OR REPLACE FUNCTION stream_lineage(
  p_tenant text,
  p_stream text
) RETURNS TABLE (stream text, after bigint, upto bigint) -- versions after + 1 to upto
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  tid integer := tenant_of(p_tenant);
BEGIN
  RETURN QUERY
    SELECT l.name, l.after, l.upto
      FROM directory d
     CROSS JOIN LATERAL lineage(d.context_id, d.stream_id, 1, NULL) l
     WHERE d.tenant_id = tid AND d.name = p_stream
     ORDER BY l.after;
END $$;
