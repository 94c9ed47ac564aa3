-- A page of a stream's events in order of version, on a branch those of its parents before its own. It ends at p_limit
-- rows, or before the data read exceeds 1 MiB as stored, so that a page of large items stays small; it always holds one
-- row where there is one.
CREATE OR REPLACE FUNCTION read_events(
  p_tenant text,
  p_stream text,
  p_first  bigint,   -- below 0: from the end, -1 is the head
  p_last   bigint,   -- null: to the head
  p_types  text[],   -- null: all
  p_limit  integer
) RETURNS TABLE (
  context text, stream text, version bigint, "position" bigint, event_id uuid, type text, schema_version smallint,
  format smallint, data json, metadata json, subject text, agent text, call_id text, task_id text, run_id text,
  unique_key text, recorded_at timestamptz, hash bytea,
  found bigint -- rows there were up to p_limit: more than the page has where it was cut by size
)
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  tid    integer := tenant_of(p_tenant);
  place  record;
  first  bigint := p_first;
  ids    bigint[];
  names  text[];
  afters bigint[];
  uptos  bigint[];
  typed  boolean := NOT p_types && ARRAY['item.appended', 'stream.forked']; -- few among many: by an index of their own
BEGIN
  SELECT d.context_id, d.stream_id, c.name AS context, s.head, coalesce(s.fork_at, 0) AS fork_at INTO place
    FROM directory d JOIN contexts c USING (context_id) JOIN streams s USING (context_id, stream_id)
   WHERE d.tenant_id = tid AND d.name = p_stream;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  IF first < 0 THEN
    first := greatest(place.head + 1 + first, 1);
  END IF;
  IF first > place.fork_at THEN
    ids := ARRAY[place.stream_id];
    names := ARRAY[p_stream];
    afters := ARRAY[first - 1];
    uptos := ARRAY[least(place.head, p_last)];
  ELSE
    SELECT array_agg(l.stream_id), array_agg(l.name), array_agg(greatest(l.after, first - 1)), array_agg(l.upto)
      INTO ids, names, afters, uptos
      FROM (SELECT * FROM lineage(place.context_id, place.stream_id, first, p_last) l ORDER BY l.after) l;
  END IF;
  RETURN QUERY
    SELECT place.context, names[r.part], r.version, r.position, r.event_id, r.type, r.schema_version, r.format, r.data,
           r.metadata, r.subject, r.agent, r.call_id, r.task_id, r.run_id, r.unique_key, r.recorded_at, r.hash, r.found
      FROM (SELECT e.*, sum(pg_column_size(e.data)) OVER (ORDER BY e.version) - pg_column_size(e.data) AS before,
                   count(*) OVER () AS found
              FROM ((SELECT g.part, e.*
                       FROM generate_subscripts(ids, 1) AS g (part) -- in order: a page reads no further than it needs
                      CROSS JOIN LATERAL (
                            SELECT * FROM events e
                             WHERE e.context_id = place.context_id AND e.stream_id = ids[g.part]
                               AND e.version > afters[g.part] AND e.version <= uptos[g.part]
                               AND (p_types IS NULL OR e.type = ANY (p_types)) AND typed IS NOT TRUE
                             ORDER BY e.version LIMIT p_limit) e
                      LIMIT p_limit)
                    UNION ALL
                    SELECT t.part, e.*
                      FROM typed_versions(place.context_id, ids, afters, uptos, p_types, p_limit) t
                     CROSS JOIN LATERAL (
                           SELECT * FROM events v -- by order: see find_repeat()
                            WHERE (v.context_id, v.stream_id, v.version) >= (place.context_id, ids[t.part], t.version)
                            ORDER BY v.context_id, v.stream_id, v.version LIMIT 1) e
                     WHERE typed) e) r
     WHERE r.before = 0 OR r.before < 1048576
     ORDER BY r.version;
END $$;
