-- Appends to several streams in one commit, each append whole or not at all and with an answer of its own: one refused
-- does not touch its neighbours. It waits for nobody: a stream that another transaction holds is answered 'skipped', as is
-- one not found, and is for the direct call. The rules of append_events(), for plain events of streams known by their ids.
CREATE OR REPLACE FUNCTION append_set(
  p_tenant          text,
  p_context_ids     bigint[],   -- one element an append, ascending by context and stream, so that none stands twice
  p_stream_ids      bigint[],
  p_origins         bytea[],    -- see advance()
  p_expecteds       bigint[],   -- see advance(); a null array is all nulls
  p_may_repeats     boolean[],  -- a key or ids were given, or this call was sent before: look for the ids first
  p_lasts           integer[],  -- which of the events below is the append's last
  p_event_ids       uuid[],     -- from here on one element an event: those of the first append, of the second, …
  p_schema_versions smallint[],
  p_formats         smallint[],
  p_types           text[],
  p_subjects        text[],     -- these may be null, which is all nulls
  p_agents          text[],
  p_call_ids        text[],
  p_task_ids        text[],     -- all nulls: who names a task waits for it
  p_run_ids         text[],
  p_metadatas       json[],
  p_datas           json[]
) RETURNS SETOF append_result   -- in the order of the appends
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
  more boolean := pg_current_xact_id_if_assigned() IS NOT NULL;
  tid  integer := tenant_of(p_tenant);
  k    integer := cardinality(p_lasts);
  n    integer := cardinality(p_event_ids);
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    RAISE EXCEPTION 'synchronous_commit is off: a crash could take back events that readers were given'
      USING ERRCODE = 'CV002', HINT = 'SET synchronous_commit = on for this login';
  END IF;
  IF coalesce(k, 0) = 0 OR (k, k, k, k) IS DISTINCT FROM
       (cardinality(p_context_ids), cardinality(p_stream_ids), cardinality(p_origins), cardinality(p_may_repeats))
     OR (n, n, n, n, n) IS DISTINCT FROM
       (p_lasts[k], cardinality(p_types), cardinality(p_datas), cardinality(p_formats), cardinality(p_schema_versions))
     OR p_types && ARRAY['history.compacted', 'items.retracted', 'history.cleared', 'stream.closed', 'stream.forked', 'task.opened',
         'task.changed']
     OR num_nonnulls(VARIADIC p_task_ids) > 0
     OR EXISTS (SELECT FROM generate_series(1, k) AS g (i)
                 WHERE (p_lasts[g.i] > CASE WHEN g.i = 1 THEN 0 ELSE p_lasts[g.i - 1] END) IS NOT TRUE
                    OR g.i > 1 AND ((p_context_ids[g.i], p_stream_ids[g.i])
                                    > (p_context_ids[g.i - 1], p_stream_ids[g.i - 1])) IS NOT TRUE) THEN
    RAISE EXCEPTION 'a set needs streams in ascending order, events for each, no task, none that changes transcripts, closes, forks'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  RETURN QUERY
  WITH places AS MATERIALIZED (
    SELECT p.a, coalesce(p_lasts[p.a - 1], 0) AS before, p_lasts[p.a] AS last, p.place, (p.place).result AS result
      FROM advance_set(tid, more, p_context_ids, p_stream_ids, p_origins, p_expecteds, p_may_repeats, p_lasts, p_event_ids,
             p_types, p_formats, p_datas) p
  ), given AS MATERIALIZED ( -- streams as they come, each in the order of versions
    SELECT p.a, p.last, g.i, p.place, p.result, (p.result).first_version + g.i - p.before - 1 AS version,
           nextval('position') AS position,
           event_hash(p_event_ids[g.i], p_schema_versions[g.i], p_types[g.i], p_subjects[g.i], NULL, p_agents[g.i],
             p_call_ids[g.i], p_task_ids[g.i], p_run_ids[g.i],
             content_hash((p.place).secret, p_event_ids[g.i], p_formats[g.i], p_datas[g.i], p_metadatas[g.i])) AS hash
      FROM places p CROSS JOIN LATERAL generate_series(p.before + 1, p.last) AS g (i)
     WHERE (p.result).outcome = 'appended'
  ), stored AS (
    INSERT INTO events (context_id, stream_id, version, position, recorded_at, event_id, tenant_id, schema_version, format,
        hash, chain, type, subject, agent, call_id, task_id, run_id, metadata, data)
    SELECT (g.result).context_id, (g.result).stream_id, g.version, g.position, (g.place).recorded_at, p_event_ids[g.i],
           (g.place).tenant_id, p_schema_versions[g.i], p_formats[g.i], g.hash,
           CASE WHEN g.i = g.last THEN append_chain((g.place).previous, (g.place).origin, (g.result).first_version,
             (g.place).recorded_at, string_agg(int8send(g.position) || g.hash, '') OVER (PARTITION BY g.a ORDER BY g.i)) END,
           p_types[g.i], p_subjects[g.i], p_agents[g.i], p_call_ids[g.i], p_task_ids[g.i], p_run_ids[g.i],
           p_metadatas[g.i], p_datas[g.i]
      FROM given g
  )
  SELECT r.outcome, r.context_id, r.stream_id, NULL::text, r.first_version, r.last_version,
         coalesce(r.drawn, r.position), r.actual, r.detail
    FROM (SELECT g.a, (g.result).*, g.position AS drawn FROM given g WHERE g.i = g.last
          UNION ALL
          SELECT p.a, (p.result).*, NULL FROM places p WHERE (p.result).outcome <> 'appended') r
   ORDER BY r.a;
END $$;
