-- The rules of a set of appends, up to where their rows are written: locks the streams that nobody else holds, answers
-- repeats, compares the expected versions, moves the heads. It waits for nobody. Only append_set() calls it.
CREATE OR REPLACE FUNCTION advance_set(
  p_tenant_id   integer,
  p_more        boolean,     -- as in stamp()
  p_context_ids bigint[],    -- these as in append_set()
  p_stream_ids  bigint[],
  p_origins     bytea[],
  p_expecteds   bigint[],
  p_may_repeats boolean[],
  p_lasts       integer[],
  p_event_ids   uuid[],
  p_types       text[],
  p_formats     smallint[],
  p_datas       json[]
) RETURNS TABLE (
  a     integer,             -- which of the appends
  place append_place
)
LANGUAGE plpgsql AS $$
DECLARE
  heads    bigint[];
  outcomes text[];
  first    integer;
BEGIN
  -- A row that moved after this statement's snapshot is locked as it is now; so nothing of the events is looked at here.
  SELECT array_agg(s.head ORDER BY u.i), array_agg(CASE WHEN s.head IS NULL THEN 'skipped' WHEN s.closed THEN 'closed'
           WHEN u.expected IS NULL OR u.expected = s.head OR u.expected = -1 AND s.head > 0 THEN 'appended'
           ELSE 'version_conflict' END ORDER BY u.i)
    INTO heads, outcomes
    FROM unnest(p_context_ids, p_stream_ids, p_origins, p_expecteds)
         WITH ORDINALITY AS u (context_id, stream_id, origin, expected, i)
    LEFT JOIN LATERAL (SELECT * FROM streams
                        WHERE context_id = u.context_id AND stream_id = u.stream_id AND tenant_id = p_tenant_id
                          AND origin = u.origin
                          FOR NO KEY UPDATE SKIP LOCKED) s ON true;
  -- New statements from here on: they see all that the locked streams have. A repeat goes before any other reason.
  FOR a IN
    SELECT g.a FROM generate_series(1, cardinality(p_lasts)) AS g (a)
     WHERE p_may_repeats[g.a] AND outcomes[g.a] <> 'skipped' AND EXISTS (
       SELECT FROM generate_series(coalesce(p_lasts[g.a - 1], 0) + 1, p_lasts[g.a]) AS r (i)
        CROSS JOIN LATERAL (SELECT e.context_id, e.stream_id, e.event_id FROM events e -- by order: see find_repeat()
          WHERE (e.context_id, e.stream_id, e.event_id) >= (p_context_ids[g.a], p_stream_ids[g.a], p_event_ids[r.i])
          ORDER BY e.context_id, e.stream_id, e.event_id LIMIT 1) e
        WHERE e.context_id = p_context_ids[g.a] AND e.stream_id = p_stream_ids[g.a] AND e.event_id = p_event_ids[r.i])
  LOOP
    first := coalesce(p_lasts[a - 1], 0) + 1;
    place.result := find_repeat(p_context_ids[a], p_stream_ids[a], p_event_ids[first:p_lasts[a]], p_types[first:p_lasts[a]],
      p_formats[first:p_lasts[a]], p_datas[first:p_lasts[a]], heads[a]);
    outcomes[a] := NULL;
    RETURN NEXT;
  END LOOP;
  IF 'appended' = ANY (outcomes) AND stamp(p_more) IS NULL THEN END IF;
  RETURN QUERY
  WITH moved AS (
    UPDATE streams s SET head = s.head + u.last - u.before, recorded_at = greatest(clock_timestamp(), s.recorded_at)
      FROM unnest(outcomes, p_context_ids, p_stream_ids, p_lasts, 0 || p_lasts)
           WITH ORDINALITY AS u (outcome, context_id, stream_id, last, before, i)
     WHERE u.outcome = 'appended' AND s.context_id = u.context_id AND s.stream_id = u.stream_id
    RETURNING u.i, s.*
  )
  SELECT m.i::integer, ROW(
           ROW('appended', m.context_id, m.stream_id, NULL, heads[m.i] + 1, m.head, NULL, NULL, NULL)::append_result,
           m.tenant_id, m.recorded_at,
           (SELECT e.chain FROM (SELECT * FROM events e -- by order: see find_repeat()
               WHERE (e.context_id, e.stream_id, e.version) >= (m.context_id, m.stream_id, heads[m.i])
               ORDER BY e.context_id, e.stream_id, e.version LIMIT 1) e
             WHERE e.context_id = m.context_id AND e.stream_id = m.stream_id AND e.version = heads[m.i]),
           m.origin, coalesce(m.secret, (SELECT c.secret FROM contexts c WHERE c.context_id = m.context_id)))::append_place
    FROM moved m
  UNION ALL
  SELECT u.i::integer, ROW(ROW(u.outcome, u.context_id, u.stream_id, NULL, NULL, NULL, NULL, u.head, NULL)::append_result,
           NULL, NULL, NULL, NULL, NULL)::append_place
    FROM unnest(outcomes, p_context_ids, p_stream_ids, heads) WITH ORDINALITY AS u (outcome, context_id, stream_id, head, i)
   WHERE u.outcome <> 'appended';
END $$;
