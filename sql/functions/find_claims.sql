-- The events of a stream's context that hold some unique keys.
CREATE OR REPLACE FUNCTION find_claims(
  p_tenant      text,
  p_stream      text,
  p_context     text,     -- where the stream is not there yet; null: its own name
  p_unique_keys text[]
) RETURNS TABLE (
  context text, stream text, version bigint, "position" bigint, event_id uuid, type text, schema_version smallint,
  format smallint, data json, metadata json, subject text, agent text, call_id text, task_id text, run_id text,
  unique_key text, recorded_at timestamptz, hash bytea
)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  tid integer := tenant_of(p_tenant);
  cid bigint := coalesce(
    (SELECT d.context_id FROM directory d WHERE d.tenant_id = tid AND d.name = p_stream),
    (SELECT c.context_id FROM contexts c WHERE c.tenant_id = tid AND c.name = coalesce(p_context, p_stream)));
BEGIN
  RETURN QUERY
    SELECT c.name, s.name, e.version, e.position, e.event_id, e.type, e.schema_version, e.format, e.data, e.metadata,
           e.subject, e.agent, e.call_id, e.task_id, e.run_id, e.unique_key, e.recorded_at, e.hash
      FROM unnest(p_unique_keys) AS u (key)
     CROSS JOIN LATERAL (
           SELECT * FROM events o -- by order: see find_repeat()
            WHERE (o.context_id, o.unique_key) >= (cid, u.key) AND o.unique_key IS NOT NULL
            ORDER BY o.context_id, o.unique_key LIMIT 1) e
      JOIN contexts c ON c.context_id = e.context_id
      JOIN streams s ON s.context_id = e.context_id AND s.stream_id = e.stream_id
     WHERE e.context_id = cid AND e.unique_key = u.key;
END $$;
