-- The tasks of a stream's context, whichever of its streams speak of them: the events that opened and changed each, in the
-- order of the log, which for one task is that of its commits.
CREATE OR REPLACE FUNCTION list_tasks(
  p_tenant  text,
  p_stream  text,
  p_context text,      -- where the stream is not there yet; null: its own name
  p_task_id text       -- null: all
) RETURNS TABLE (
  context text, stream text, version bigint, "position" bigint, event_id uuid, type text, schema_version smallint,
  format smallint, data json, metadata json, subject text, agent text, call_id text, task_id text, run_id text,
  unique_key text, recorded_at timestamptz, hash bytea
)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
SET enable_sort = off SET enable_incremental_sort = off AS $$
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
      FROM contexts c
      JOIN tasks t ON t.context_id = c.context_id AND t.status IS NOT NULL AND (p_task_id IS NULL OR t.task_id = p_task_id)
     CROSS JOIN LATERAL (
           SELECT * FROM events o -- by order, which only the index on subjects gives
            WHERE (o.context_id, o.subject) >= (t.context_id, t.task_id) AND (o.context_id, o.subject) <= (t.context_id, t.task_id)
              AND o.subject IS NOT NULL AND o.type IN ('task.opened', 'task.changed')
            ORDER BY o.context_id, o.subject OFFSET 0) e
      JOIN streams s ON s.context_id = e.context_id AND s.stream_id = e.stream_id
     WHERE c.context_id = cid
     ORDER BY e.position;
END $$;
