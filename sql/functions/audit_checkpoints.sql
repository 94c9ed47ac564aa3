-- For verification: a page of the checkpoints of all streams of the tenant, or of those that one stream's transcripts may
-- be folded from, in order of stream and version.
CREATE OR REPLACE FUNCTION audit_checkpoints(
  p_tenant text,
  p_stream text,       -- null: all
  p_after  bigint[],   -- context_id, stream_id and version of the last one of the page before; null at first
  p_limit  integer
) RETURNS TABLE (stream text, context_id bigint, stream_id bigint, version bigint, tenant_fits boolean, ranges json)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  tid integer := tenant_of(p_tenant);
BEGIN
  RETURN QUERY
    SELECT s.name, k.context_id, k.stream_id, k.version, k.tenant_id = tid, k.ranges
      FROM checkpoints k
      LEFT JOIN streams s ON s.context_id = k.context_id AND s.stream_id = k.stream_id
     WHERE (p_after IS NULL OR (k.context_id, k.stream_id, k.version) > (p_after[1], p_after[2], p_after[3]))
       AND (k.tenant_id = tid OR s.tenant_id = tid)
       AND (p_stream IS NULL
         OR (k.context_id, k.stream_id) IN (
              SELECT d.context_id, l.stream_id
                FROM directory d CROSS JOIN LATERAL lineage(d.context_id, d.stream_id, 1, NULL) l
               WHERE d.tenant_id = tid AND d.name = p_stream))
     ORDER BY k.context_id, k.stream_id, k.version LIMIT p_limit;
END $$;
