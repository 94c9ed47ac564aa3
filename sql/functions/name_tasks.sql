-- Locks the tasks that an append names, until it ends: it comes before the end of a task, or is refused. Everybody locks
-- them before the stream's row, in order of id. A name that was never opened gets a row too: it may be opened meanwhile.
CREATE OR REPLACE FUNCTION name_tasks(
  p_change     boolean,    -- append_tasks() asks, and decides by itself
  p_tenant     text,       -- these as in advance()
  p_stream     text,
  p_context    text,
  p_context_id bigint,
  p_stream_id  bigint,
  p_origin     bytea,
  p_expected   bigint,
  p_may_repeat boolean,
  p_event_ids  uuid[],
  p_types      text[],
  p_formats    smallint[],
  p_datas      json[],
  p_task_ids   text[]
) RETURNS append_result    -- outcome task_closed, or that of a repeat; null: go on, in the context that it tells
LANGUAGE plpgsql AS $$
DECLARE
  tid    integer := tenant_of(p_tenant);
  r      append_result;
  known  append_result;
  names  text[] := array_remove(p_task_ids, NULL);
  queue  bigint;
  closed text;
  id     text;
  task   record;
BEGIN
  IF p_stream_id IS NOT NULL THEN
    SELECT s.context_id, s.stream_id INTO r.context_id, r.stream_id FROM streams s
     WHERE s.context_id = p_context_id AND s.stream_id = p_stream_id AND s.origin = p_origin AND s.tenant_id = tid;
  ELSE
    SELECT d.context_id, d.stream_id INTO r.context_id, r.stream_id
      FROM directory d WHERE d.tenant_id = tid AND d.name = p_stream;
    IF NOT FOUND AND coalesce(p_expected, 0) = 0 THEN
      r.context_id := create_context(p_tenant, coalesce(p_context, p_stream));
      tid := tenant_of(p_tenant);
    END IF;
  END IF;
  IF r.context_id IS NULL THEN
    RETURN r; -- advance() tells what is wrong
  END IF;
  IF cardinality(names) > 1 THEN
    names := ARRAY(SELECT DISTINCT u.id FROM unnest(names) AS u (id) ORDER BY u.id);
  END IF;
  FOREACH id IN ARRAY coalesce(names, '{}') LOOP
    IF cardinality(names) <= 8 THEN -- shared row locks are handed on past who waits to change the row; this is a fair queue
      queue := 17751::bigint << 48 | hashtextextended(id, r.context_id) & 281474976710655;
      IF p_change THEN PERFORM pg_advisory_xact_lock(queue); ELSE PERFORM pg_advisory_xact_lock_shared(queue); END IF;
    END IF;
    LOOP
      IF p_change THEN
        SELECT * INTO task FROM tasks t WHERE t.context_id = r.context_id AND t.task_id = id FOR NO KEY UPDATE;
      ELSE
        SELECT * INTO task FROM tasks t WHERE t.context_id = r.context_id AND t.task_id = id FOR SHARE;
      END IF;
      EXIT WHEN FOUND;
      INSERT INTO tasks (context_id, task_id, tenant_id) VALUES (r.context_id, id, tid) ON CONFLICT DO NOTHING;
    END LOOP;
    IF task.closed AND (task.stream_id = r.stream_id AND task.event_id = ANY (p_event_ids)) IS NOT TRUE THEN
      closed := coalesce(closed, task.status || ' ' || id);
    END IF;
  END LOOP;
  IF p_may_repeat AND (p_change OR closed IS NOT NULL) THEN
    known := find_repeat(r.context_id, r.stream_id, p_event_ids, p_types, p_formats, p_datas, NULL);
    IF known.outcome IS NOT NULL THEN
      RETURN known;
    END IF;
  END IF;
  IF p_change THEN
    RETURN r;
  END IF;
  IF closed IS NOT NULL THEN
    r.outcome := 'task_closed';
    r.detail := closed;
    r.context := (SELECT c.name FROM contexts c WHERE c.context_id = r.context_id AND r.stream_id IS NOT NULL);
  ELSIF p_types && ARRAY['task.opened', 'task.changed'] THEN
    IF EXISTS ( -- else each row carries the id of an event of this append: append_tasks() has decided
        SELECT FROM unnest(p_types, p_task_ids) AS u (type, task_id)
          LEFT JOIN tasks t ON t.context_id = r.context_id AND t.task_id = u.task_id AND t.stream_id = r.stream_id
           AND t.event_id = ANY (p_event_ids)
         WHERE u.type IN ('task.opened', 'task.changed') AND t.task_id IS NULL) THEN
      RAISE EXCEPTION 'task.opened and task.changed are written by append_tasks() only' USING ERRCODE = 'invalid_parameter_value';
    END IF;
  END IF;
  RETURN r;
END $$;
