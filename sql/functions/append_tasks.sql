-- Appends a batch that opens tasks or changes their status: each task's row is locked, judged and moved, then the batch is
-- appended as in append_events(). Whatever is refused leaves nothing of all this.
CREATE OR REPLACE FUNCTION append_tasks(
  p_tenant          text,
  p_stream          text,
  p_context         text,     -- see advance() for these
  p_tags            jsonb,
  p_expected        bigint,
  p_may_repeat      boolean,
  p_event_ids       uuid[],
  p_schema_versions smallint[],
  p_formats         smallint[],
  p_types           text[],
  p_subjects        text[],   -- of task.opened and task.changed: the task
  p_agents          text[],
  p_call_ids        text[],
  p_task_ids        text[],
  p_run_ids         text[],
  p_unique_keys     text[],
  p_metadatas       json[],
  p_datas           json[],
  p_statuses        text[],   -- what each task.opened and task.changed gives its task; of the others null
  p_follows         text[],   -- the task that each task.opened follows; null: none
  p_was             text      -- what the first one finds, or it is refused; null: any
) RETURNS append_result       -- outcome also task_closed, task_exists, task_status (detail: status, blank, task), no_task
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
  tid  integer := tenant_of(p_tenant);
  n    integer := cardinality(p_event_ids);
  was  text := p_was;
  r    append_result;
  task record;
BEGIN
  IF coalesce(n, 0) = 0 OR (n, n, n) IS DISTINCT FROM (cardinality(p_types), cardinality(p_task_ids), cardinality(p_statuses))
     OR EXISTS (SELECT FROM generate_series(1, n) AS g (i)
                 WHERE (p_types[g.i] IN ('task.opened', 'task.changed')) IS DISTINCT FROM (p_statuses[g.i] IS NOT NULL)
                    OR p_types[g.i] = 'task.opened' AND p_statuses[g.i] <> 'submitted'
                    OR p_statuses[g.i] IS NOT NULL AND (p_subjects[g.i] = p_task_ids[g.i]) IS NOT TRUE) THEN
    RAISE EXCEPTION 'each task.opened needs the status submitted, each task.changed a status, both their task as subject'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  BEGIN
    r := name_tasks(true, p_tenant, p_stream, p_context, NULL, NULL, NULL, p_expected, p_may_repeat, p_event_ids, p_types,
      p_formats, p_datas, p_task_ids);
    IF r.outcome IS NULL THEN
      r := find_stream(coalesce(tid, tenant_of(p_tenant)), p_tenant, p_stream, p_context, p_tags, p_expected,
        array_remove(p_unique_keys, NULL));
    END IF;
    FOR i IN 1 .. n LOOP
      EXIT WHEN r.outcome IS NOT NULL;
      CONTINUE WHEN p_statuses[i] IS NULL;
      SELECT t.status, t.closed INTO task FROM tasks t WHERE t.context_id = r.context_id AND t.task_id = p_task_ids[i];
      r.detail := concat_ws(' ', task.status, p_task_ids[i]);
      IF p_types[i] = 'task.opened' AND task.status IS NOT NULL THEN
        r.outcome := 'task_exists';
      ELSIF p_types[i] = 'task.opened' AND p_follows[i] IS NOT NULL AND NOT EXISTS (SELECT FROM tasks t
              WHERE t.context_id = r.context_id AND t.task_id = p_follows[i] AND t.status IS NOT NULL) THEN
        r.outcome := 'no_task';
        r.detail := p_follows[i];
      ELSIF p_types[i] = 'task.changed' AND task.status IS NULL THEN
        r.outcome := 'no_task';
      ELSIF task.closed THEN
        r.outcome := 'task_closed';
      ELSIF task.status <> was THEN
        r.outcome := 'task_status';
      ELSE
        was := NULL;
        UPDATE tasks t SET status = p_statuses[i], stream_id = r.stream_id, event_id = p_event_ids[i]
         WHERE t.context_id = r.context_id AND t.task_id = p_task_ids[i] RETURNING t.closed INTO task;
        IF task.closed AND p_task_ids[i] = ANY (p_task_ids[i + 1:]) THEN
          r.outcome := 'task_closed';
          r.detail := p_statuses[i] || ' ' || p_task_ids[i];
        END IF;
      END IF;
    END LOOP;
    IF r.outcome IS NULL THEN
      r := append_events(p_tenant, p_stream, p_context, p_tags, NULL, NULL, NULL, p_expected, p_may_repeat, p_event_ids,
        p_schema_versions, p_formats, p_types, p_subjects, p_agents, p_call_ids, p_task_ids, p_run_ids, p_unique_keys,
        p_metadatas, p_datas);
    END IF;
    IF r.outcome <> 'appended' THEN
      RAISE EXCEPTION 'refused' USING ERRCODE = 'CV005';
    END IF;
  EXCEPTION WHEN SQLSTATE 'CV005' THEN NULL; -- takes the rows back, and a stream made for them
  END;
  RETURN r;
END $$;
