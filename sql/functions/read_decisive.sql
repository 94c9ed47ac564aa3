-- What a decision about a stream is made from, in one look: its events of some types, on a branch its parents' too (part
-- 1); the last one of a type (part 2); and what its whole context has about some subjects (part 3). The first row, of part
-- 0, names context and stream and has the head as its version.
CREATE OR REPLACE FUNCTION read_decisive(
  p_tenant        text,
  p_stream        text,
  p_context       text,     -- of a stream that is not there yet; null: its own name
  p_types         text[],   -- no items
  p_limit         integer,  -- of part 1, at most
  p_last          text,     -- null: no part 2
  p_subjects      text[],
  p_subject_types text[]
) RETURNS TABLE (
  context text, stream text, version bigint, "position" bigint, event_id uuid, type text, schema_version smallint,
  format smallint, data json, metadata json, subject text, agent text, call_id text, task_id text, run_id text,
  unique_key text, recorded_at timestamptz, hash bytea, part integer
)
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  tid    integer := tenant_of(p_tenant);
  place  record;
  ids    bigint[];
  names  text[];
  afters bigint[];
  uptos  bigint[];
BEGIN
  SELECT c.context_id, d.stream_id, c.name AS context, coalesce(s.head, 0) AS head, coalesce(s.fork_at, 0) AS fork_at INTO place
    FROM (SELECT) one
    LEFT JOIN directory d ON d.tenant_id = tid AND d.name = p_stream
    LEFT JOIN streams s ON s.context_id = d.context_id AND s.stream_id = d.stream_id
    LEFT JOIN contexts c ON c.tenant_id = tid AND (d.context_id IS NULL AND c.name = coalesce(p_context, p_stream)
                                                   OR c.context_id = d.context_id);
  RETURN QUERY SELECT coalesce(place.context, p_context, p_stream), p_stream, place.head, NULL::bigint, NULL::uuid, NULL,
    NULL::smallint, NULL::smallint, NULL::json, NULL::json, NULL, NULL, NULL, NULL, NULL, NULL, NULL::timestamptz, NULL::bytea, 0;
  IF place.fork_at = 0 THEN
    ids := ARRAY[place.stream_id];
    names := ARRAY[p_stream];
    afters := ARRAY[0::bigint];
    uptos := ARRAY[place.head];
  ELSE
    SELECT array_agg(l.stream_id), array_agg(l.name), array_agg(l.after), array_agg(l.upto) INTO ids, names, afters, uptos
      FROM (SELECT * FROM lineage(place.context_id, place.stream_id, 1, NULL) l ORDER BY l.after) l;
  END IF;
  RETURN QUERY
    SELECT place.context, f.name, e.version, e.position, e.event_id, e.type, e.schema_version, e.format, e.data, e.metadata,
           e.subject, e.agent, e.call_id, e.task_id, e.run_id, e.unique_key, e.recorded_at, e.hash, f.part
      FROM (SELECT 1 AS part, names[v.part] AS name, ids[v.part] AS stream_id, v.version
              FROM typed_versions(place.context_id, ids, afters, uptos, p_types, p_limit) v
            UNION ALL
            (SELECT 2, names[g.i], ids[g.i], v.version
               FROM generate_series(cardinality(ids), 1, -1) AS g (i)
              CROSS JOIN LATERAL (
                    SELECT o.version FROM events o
                     WHERE (o.context_id, o.stream_id, o.type, o.version) > (place.context_id, ids[g.i], p_last, afters[g.i])
                       AND (o.context_id, o.stream_id, o.type, o.version) <= (place.context_id, ids[g.i], p_last, uptos[g.i])
                       AND o.type NOT IN ('item.appended', 'stream.forked')
                     ORDER BY o.context_id DESC, o.stream_id DESC, o.type DESC, o.version DESC LIMIT 1) v
              LIMIT 1)
            UNION ALL
            SELECT 3, s.name, a.stream_id, a.version
              FROM unnest(p_subjects) AS u (subject)
             CROSS JOIN LATERAL (
                   SELECT b.stream_id, b.version FROM events b
                    WHERE b.context_id = place.context_id AND b.subject = u.subject AND b.type = ANY (p_subject_types)
                   OFFSET 0) a
              JOIN streams s ON s.context_id = place.context_id AND s.stream_id = a.stream_id) f
     CROSS JOIN LATERAL (
           SELECT * FROM events v -- by order: see find_repeat()
            WHERE (v.context_id, v.stream_id, v.version) >= (place.context_id, f.stream_id, f.version)
            ORDER BY v.context_id, v.stream_id, v.version LIMIT 1) e
     ORDER BY f.part, e.position;
END $$;
