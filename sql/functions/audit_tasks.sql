-- For verification: a page of the tenant's tasks, with the event that gave each its status, as of one moment.
CREATE OR REPLACE FUNCTION audit_tasks(
  p_tenant  text,
  p_context bigint,   -- from this context on
  p_task    text,     -- after this task of it; null: from its first on
  p_limit   integer
) RETURNS TABLE (
  context_id bigint, task_id text, tenant_fits boolean, status text, stream text, version bigint, "position" bigint,
  type text, event_task_id text, schema_version smallint, format smallint, data json
)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  tid integer := tenant_of(p_tenant);
BEGIN
  RETURN QUERY
    SELECT t.context_id, t.task_id, t.tenant_id = tid AND c.tenant_id = tid, t.status, s.name, e.version, e.position, e.type,
           e.task_id, e.schema_version, e.format, e.data
      FROM (SELECT * FROM tasks t
             WHERE (t.tenant_id = tid OR t.context_id IN (SELECT c.context_id FROM contexts c WHERE c.tenant_id = tid))
               AND t.context_id >= p_context AND (p_task IS NULL OR (t.context_id, t.task_id) > (p_context, p_task))
             ORDER BY t.context_id, t.task_id LIMIT p_limit) t
      LEFT JOIN contexts c ON c.context_id = t.context_id
      LEFT JOIN streams s ON s.context_id = t.context_id AND s.stream_id = t.stream_id
      LEFT JOIN LATERAL (
           SELECT * FROM events o -- by order: see find_repeat()
            WHERE (o.context_id, o.stream_id, o.event_id) >= (t.context_id, t.stream_id, t.event_id)
            ORDER BY o.context_id, o.stream_id, o.event_id LIMIT 1) e
        ON e.context_id = t.context_id AND e.stream_id = t.stream_id AND e.event_id = t.event_id
     ORDER BY t.context_id, t.task_id;
END $$;
