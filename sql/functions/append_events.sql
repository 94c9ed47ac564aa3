-- Appends a batch to one stream, whole or not at all. Arrays hold one element an event; a null array is all nulls.
CREATE OR REPLACE FUNCTION append_events(
  p_tenant          text, p_stream text,
  p_context         text,     -- see advance()
  p_tags            jsonb,
  p_context_id      bigint, p_stream_id bigint,
  p_origin          bytea,
  p_expected        bigint,
  p_may_repeat      boolean,  -- a key or ids were given, or this call was sent before: look for the ids first
  p_event_ids       uuid[],
  p_schema_versions smallint[], p_formats smallint[],
  p_types           text[],
  p_subjects        text[], p_agents text[], p_call_ids text[], p_task_ids text[], p_run_ids text[], p_unique_keys text[],
  p_metadatas       json[], p_datas json[]
) RETURNS append_result
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
  more     boolean := pg_current_xact_id_if_assigned() IS NOT NULL;
  n        integer := cardinality(p_event_ids);
  marks    boolean := p_types && ARRAY['history.compacted', 'items.retracted', 'history.cleared', 'stream.closed', 'stream.forked'];
  tasks    boolean := coalesce(num_nonnulls(VARIADIC p_task_ids) > 0, false) OR p_types && ARRAY['task.opened', 'task.changed'];
  named    append_result;
  place    append_place;
  r        append_result;
  new_head bigint;
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    RAISE EXCEPTION 'synchronous_commit is off: a crash could take back events that readers were given'
      USING ERRCODE = 'CV002', HINT = 'SET synchronous_commit = on for this login';
  END IF;
  IF coalesce(n, 0) = 0 OR (n, n, n, n) IS DISTINCT FROM
       (cardinality(p_types), cardinality(p_datas), cardinality(p_formats), cardinality(p_schema_versions))
     OR 'stream.closed' = ANY (p_types[:n - 1]) OR 'stream.forked' = ANY (p_types) THEN
    RAISE EXCEPTION 'a batch needs equally many ids, types, formats and datas, at least one, nothing after stream.closed, no fork'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF p_stream_id IS NOT NULL AND NOT p_may_repeat AND p_unique_keys IS NULL AND NOT marks AND NOT tasks THEN -- see append_event()
    UPDATE streams s SET head = s.head + n, recorded_at = greatest(clock_timestamp(), s.recorded_at)
     WHERE s.context_id = p_context_id AND s.stream_id = p_stream_id AND s.origin = p_origin AND NOT s.closed
       AND (p_expected IS NULL OR s.head = p_expected OR p_expected = -1 AND s.head > 0)
       AND EXISTS (SELECT FROM tenant_logins l WHERE l.login = session_user AND l.tenant_id IN (0, s.tenant_id))
    RETURNING s.head, s.recorded_at, s.tenant_id, s.secret, s.origin,
              (SELECT e.chain FROM events e WHERE e.context_id = p_context_id AND e.stream_id = p_stream_id
                  AND e.version BETWEEN s.head - n AND s.head ORDER BY e.version LIMIT 1)
         INTO new_head, place.recorded_at, place.tenant_id, place.secret, place.origin, place.previous;
    place.result := ('appended', p_context_id, p_stream_id, NULL, new_head - n + 1, new_head, NULL, NULL, NULL);
  END IF;
  IF new_head IS NULL THEN
    IF tasks THEN
      named := name_tasks(false, p_tenant, p_stream, p_context, p_context_id, p_stream_id, p_origin, p_expected, p_may_repeat,
        p_event_ids, p_types, p_formats, p_datas, p_task_ids);
      IF named.outcome IS NOT NULL THEN RETURN named; END IF;
    END IF;
    place := advance(p_tenant, p_stream, p_context, p_tags, p_context_id, p_stream_id, p_origin, p_expected, n,
      CASE WHEN marks THEN (SELECT max(t.ord) FROM unnest(p_types) WITH ORDINALITY AS t (type, ord)
        WHERE t.type IN ('history.compacted', 'items.retracted', 'history.cleared'))::integer END,
      p_types[n] = 'stream.closed',
      CASE WHEN p_may_repeat THEN p_event_ids END, p_types, p_formats, p_datas, array_remove(p_unique_keys, NULL));
  ELSIF place.previous IS NULL THEN
    place := after_wait(place, NULL, NULL, NULL, NULL);
  END IF;
  r := place.result;
  IF r.outcome <> 'appended' THEN
    RETURN r;
  ELSIF r.context_id <> named.context_id THEN
    RAISE EXCEPTION 'stream % was made meanwhile', quote_literal(p_stream) USING ERRCODE = 'serialization_failure';
  ELSIF place.secret IS NULL THEN -- a branch leaves it with the context
    place.secret := (SELECT c.secret FROM contexts c WHERE c.context_id = r.context_id);
  END IF;
  IF stamp(more) IS NULL THEN END IF;
  WITH given AS MATERIALIZED ( -- subscripts, because unnest() of twelve arrays sets up twelve tuple stores
    SELECT g.i, nextval('position') AS position, -- in the order of versions
           event_hash(p_event_ids[g.i], p_schema_versions[g.i], p_types[g.i], p_subjects[g.i], p_unique_keys[g.i], p_agents[g.i],
             p_call_ids[g.i], p_task_ids[g.i], p_run_ids[g.i],
             content_hash(place.secret, p_event_ids[g.i], p_formats[g.i], p_datas[g.i], p_metadatas[g.i])) AS hash
      FROM generate_series(1, n) AS g (i)
  )
  INSERT INTO events (context_id, stream_id, version, position, recorded_at, event_id, tenant_id, schema_version, format,
      hash, chain, type, subject, agent, call_id, task_id, run_id, unique_key, metadata, data)
  SELECT r.context_id, r.stream_id, r.first_version + g.i - 1, g.position, place.recorded_at, p_event_ids[g.i],
         place.tenant_id, p_schema_versions[g.i], p_formats[g.i], g.hash,
         CASE WHEN g.i = n THEN append_chain(place.previous, place.origin, r.first_version, place.recorded_at,
           (SELECT string_agg(int8send(f.position) || f.hash, '' ORDER BY f.i) FROM given f)) END,
         p_types[g.i], p_subjects[g.i], p_agents[g.i], p_call_ids[g.i], p_task_ids[g.i], p_run_ids[g.i], p_unique_keys[g.i],
         p_metadatas[g.i], p_datas[g.i]
    FROM given g;
  r.position := currval('position'); -- the last one drawn here
  RETURN r;
END $$;
