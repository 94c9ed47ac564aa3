-- Appends a batch to one stream, whole or not at all. Arrays hold one element an event; a null array is all nulls.
CREATE OR REPLACE FUNCTION append_events(
  p_tenant          text,
  p_stream          text,
  p_context         text,     -- see advance() for these
  p_tags            jsonb,
  p_context_id      bigint,
  p_stream_id       bigint,
  p_origin          bytea,
  p_expected        bigint,
  p_may_repeat      boolean,  -- a key or ids were given, or this call was sent before: look for the ids first
  p_event_ids       uuid[],
  p_schema_versions smallint[],
  p_formats         smallint[],
  p_types           text[],
  p_subjects        text[],
  p_agents          text[],
  p_call_ids        text[],
  p_task_ids        text[],
  p_run_ids         text[],
  p_unique_keys     text[],
  p_metadatas       json[],
  p_datas           json[]
) RETURNS append_result
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
  more  boolean := pg_current_xact_id_if_assigned() IS NOT NULL;
  n     integer := cardinality(p_event_ids);
  place append_place;
  r     append_result;
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    RAISE EXCEPTION 'synchronous_commit is off: a crash could take back events that readers were given'
      USING ERRCODE = 'CV002', HINT = 'SET synchronous_commit = on for this login';
  END IF;
  IF coalesce(n, 0) = 0 OR (n, n, n, n) IS DISTINCT FROM
       (cardinality(p_types), cardinality(p_datas), cardinality(p_formats), cardinality(p_schema_versions))
     OR 'stream.closed' = ANY (p_types[:n - 1]) THEN
    RAISE EXCEPTION 'a batch needs equally many ids, types, formats and datas, at least one, and nothing after stream.closed'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  place := advance(p_tenant, p_stream, p_context, p_tags, p_context_id, p_stream_id, p_origin, p_expected, n,
    (SELECT max(t.ord) FROM unnest(p_types) WITH ORDINALITY AS t (type, ord)
      WHERE t.type IN ('history.compacted', 'items.retracted', 'history.cleared'))::integer,
    p_types[n] = 'stream.closed',
    CASE WHEN p_may_repeat THEN p_event_ids END, p_types, p_formats, p_datas, array_remove(p_unique_keys, NULL));
  r := place.result;
  IF r.outcome <> 'appended' THEN
    RETURN r;
  END IF;
  IF stamp(more) IS NULL THEN END IF;
  WITH given AS MATERIALIZED ( -- positions are drawn in the order of versions
    SELECT u.*, nextval('position') AS position,
           event_hash(u.event_id, u.schema_version, u.type, u.subject, u.unique_key, u.agent, u.call_id, u.task_id, u.run_id,
             content_hash(place.secret, u.event_id, u.format, u.data, u.metadata)) AS hash
      FROM unnest(p_event_ids, p_schema_versions, p_formats, p_types, p_subjects, p_agents, p_call_ids, p_task_ids,
             p_run_ids, p_unique_keys, p_metadatas, p_datas) WITH ORDINALITY
           AS u (event_id, schema_version, format, type, subject, agent, call_id, task_id, run_id, unique_key, metadata, data, ord)
  ), written AS (
    INSERT INTO events (context_id, stream_id, version, position, recorded_at, event_id, tenant_id, schema_version, format,
        hash, chain, type, subject, agent, call_id, task_id, run_id, unique_key, metadata, data)
    SELECT r.context_id, r.stream_id, r.first_version + g.ord - 1, g.position, place.recorded_at, g.event_id, place.tenant_id,
           g.schema_version, g.format, g.hash,
           CASE WHEN g.ord = n THEN append_chain(place.previous, place.origin, r.first_version, place.recorded_at,
             (SELECT string_agg(int8send(f.position) || f.hash, '' ORDER BY f.ord) FROM given f)) END,
           g.type, g.subject, g.agent, g.call_id, g.task_id, g.run_id, g.unique_key, g.metadata, g.data
      FROM given g ORDER BY g.ord
    RETURNING position
  )
  SELECT max(position) INTO r.position FROM written;
  RETURN r;
END $$;
