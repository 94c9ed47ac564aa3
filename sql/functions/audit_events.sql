-- For verification: a page of a stream's rows as they are stored, with the head as of the same moment; one row of nulls
-- where the page is empty. It ends at p_limit rows, or before the data read exceeds 1 MiB as stored. Times are brought
-- into the years that a client can hold, so that one beyond them is found as changed and not as an error.
CREATE OR REPLACE FUNCTION audit_events(
  p_tenant     text,
  p_context_id bigint,
  p_stream_id  bigint,
  p_after      bigint,   -- null: from the first row on
  p_limit      integer
) RETURNS TABLE (
  head bigint, control bigint, closed boolean, streams_recorded_at timestamptz, tenant_fits boolean,
  version bigint, "position" bigint, recorded_at timestamptz, event_id uuid, schema_version smallint, format smallint,
  hash bytea, chain bytea, type text, subject text, agent text, call_id text, task_id text, run_id text, unique_key text,
  metadata json, data json
)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  tid integer := tenant_of(p_tenant);
BEGIN
  RETURN QUERY
    SELECT s.head, s.control, s.closed, least(greatest(s.recorded_at, '0001-01-02'), '9999-12-30'),
           r.tenant_id = tid AND s.tenant_id = tid AND c.tenant_id = tid,
           r.version, r.position, least(greatest(r.recorded_at, '0001-01-02'), '9999-12-30'), r.event_id,
           r.schema_version, r.format, r.hash, r.chain, r.type, r.subject, r.agent, r.call_id, r.task_id, r.run_id,
           r.unique_key, r.metadata, r.data
      FROM (SELECT x.context_id, x.stream_id, y.tenant_id FROM streams x
              JOIN directory y ON y.tenant_id = tid AND y.name = x.name
             WHERE x.context_id = p_context_id AND x.stream_id = p_stream_id) d
      LEFT JOIN contexts c ON c.context_id = d.context_id
      LEFT JOIN streams s ON s.context_id = d.context_id AND s.stream_id = d.stream_id
      LEFT JOIN LATERAL (
        SELECT e.*, sum(pg_column_size(e.data)) OVER (ORDER BY e.version) - pg_column_size(e.data) AS before
          FROM (SELECT * FROM events e
                 WHERE e.context_id = d.context_id AND e.stream_id = d.stream_id AND (p_after IS NULL OR e.version > p_after)
                 ORDER BY e.version LIMIT p_limit) e) r ON r.before = 0 OR r.before < 1048576
     ORDER BY r.version;
END $$;
