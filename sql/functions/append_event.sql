-- Appends one event: one durable round trip. The common case, a plain event of a stream known by its ids, is written
-- out here in two statements; all else, and every refusal, goes through advance(), which has the same rules.
CREATE OR REPLACE FUNCTION append_event(
  p_tenant         text,
  p_stream         text,
  p_context        text,      -- see advance() for these
  p_tags           jsonb,
  p_context_id     bigint,
  p_stream_id      bigint,
  p_origin         bytea,
  p_expected       bigint,
  p_may_repeat     boolean,   -- a key or ids were given, or this call was sent before: look for the id first
  p_event_id       uuid,
  p_schema_version smallint, p_format smallint,
  p_type           text,
  p_subject        text, p_agent text, p_call_id text, p_task_id text, p_run_id text, p_unique_key text,
  p_metadata       json,
  p_data           json
) RETURNS append_result
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
  more     boolean := pg_current_xact_id_if_assigned() IS NOT NULL;
  named    append_result;
  place    append_place;
  r        append_result;
  new_head bigint;
  drawn    bigint;
  digest   bytea;
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    RAISE EXCEPTION 'synchronous_commit is off: a crash could take back events that readers were given'
      USING ERRCODE = 'CV002', HINT = 'SET synchronous_commit = on for this login';
  END IF;
  IF p_stream_id IS NOT NULL AND p_unique_key IS NULL AND p_task_id IS NULL AND (p_type = 'item.appended' OR p_type ~ '^x[.]') THEN
    -- The names' digest stands for the tenant's name too, so the login's right can be looked up by the tenant's id.
    UPDATE streams s SET head = s.head + 1, recorded_at = greatest(clock_timestamp(), s.recorded_at)
     WHERE s.context_id = p_context_id AND s.stream_id = p_stream_id AND s.origin = p_origin AND NOT s.closed
       AND (p_expected IS NULL OR s.head = p_expected OR p_expected = -1 AND s.head > 0)
       AND EXISTS (SELECT FROM tenant_logins l WHERE l.login = session_user AND l.tenant_id IN (0, s.tenant_id))
       AND NOT (p_may_repeat AND EXISTS (
         SELECT FROM (SELECT e.context_id, e.stream_id, e.event_id FROM events e -- by order: see find_repeat()
                       WHERE (e.context_id, e.stream_id, e.event_id) >= (p_context_id, p_stream_id, p_event_id)
                       ORDER BY e.context_id, e.stream_id, e.event_id LIMIT 1) e
          WHERE e.context_id = p_context_id AND e.stream_id = p_stream_id AND e.event_id = p_event_id))
    RETURNING s.head, s.recorded_at, s.tenant_id, s.secret, s.origin,
              (SELECT e.chain FROM events e WHERE e.context_id = p_context_id AND e.stream_id = p_stream_id
                  AND e.version BETWEEN s.head - 1 AND s.head ORDER BY e.version LIMIT 1)
         INTO new_head, place.recorded_at, place.tenant_id, place.secret, place.origin, place.previous;
    r := ('appended', p_context_id, p_stream_id, NULL, new_head, new_head, NULL, NULL, NULL);
  END IF;
  IF new_head IS NULL THEN
    IF p_type = 'stream.forked' THEN
      RAISE EXCEPTION 'stream.forked is written by fork_stream() only' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF p_task_id IS NOT NULL OR p_type IN ('task.opened', 'task.changed') THEN
      named := name_tasks(false, p_tenant, p_stream, p_context, p_context_id, p_stream_id, p_origin, p_expected, p_may_repeat,
        ARRAY[p_event_id], ARRAY[p_type], ARRAY[p_format], ARRAY[p_data], ARRAY[p_task_id]);
      IF named.outcome IS NOT NULL THEN RETURN named; END IF;
    END IF;
    place := advance(p_tenant, p_stream, p_context, p_tags, p_context_id, p_stream_id, p_origin, p_expected, 1,
      CASE WHEN p_type IN ('history.compacted', 'items.retracted', 'history.cleared') THEN 1 END, p_type = 'stream.closed',
      CASE WHEN p_may_repeat THEN ARRAY[p_event_id] END, ARRAY[p_type], ARRAY[p_format], ARRAY[p_data],
      CASE WHEN p_unique_key IS NOT NULL THEN ARRAY[p_unique_key] END);
    r := place.result;
  ELSIF place.previous IS NULL THEN
    place.result := r;
    place := after_wait(place, CASE WHEN p_may_repeat THEN ARRAY[p_event_id] END, ARRAY[p_type], ARRAY[p_format], ARRAY[p_data]);
    r := place.result;
  END IF;
  IF r.outcome <> 'appended' THEN
    RETURN r;
  ELSIF r.context_id <> named.context_id THEN
    RAISE EXCEPTION 'stream % was made meanwhile', quote_literal(p_stream) USING ERRCODE = 'serialization_failure';
  ELSIF place.secret IS NULL THEN -- a branch leaves it with the context
    place.secret := (SELECT c.secret FROM contexts c WHERE c.context_id = r.context_id);
  END IF;
  IF stamp(more) IS NULL THEN END IF;
  drawn := nextval('position');
  r.position := drawn;
  digest := event_hash(p_event_id, p_schema_version, p_type, p_subject, p_unique_key, p_agent, p_call_id, p_task_id, p_run_id,
    content_hash(place.secret, p_event_id, p_format, p_data, p_metadata));
  INSERT INTO events (context_id, stream_id, version, position, recorded_at, event_id, tenant_id, schema_version, format,
      hash, chain, type, subject, agent, call_id, task_id, run_id, unique_key, metadata, data)
    VALUES (r.context_id, r.stream_id, r.last_version, drawn, place.recorded_at, p_event_id, place.tenant_id,
      p_schema_version, p_format, digest,
      append_chain(place.previous, place.origin, r.first_version, place.recorded_at, int8send(drawn) || digest),
      p_type, p_subject, p_agent, p_call_id, p_task_id, p_run_id, p_unique_key, p_metadata, p_data);
  RETURN r;
END $$;
