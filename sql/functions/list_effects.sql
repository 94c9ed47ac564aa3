-- A page of the events about effects in a stream's context, by stream, type and version, with the server's time. It ends at
-- p_limit rows, or before the data read exceeds 1 MiB as stored; it always holds one row where there is one.
CREATE OR REPLACE FUNCTION list_effects(
  p_tenant        text,
  p_stream        text,
  p_context       text,     -- as in effect_events()
  p_after_stream  bigint,   -- after this one: stream_id, type and version of the last row of a page; 0 for the first page
  p_after_type    text,
  p_after_version bigint,
  p_limit         integer
) RETURNS TABLE (
  context text, stream text, version bigint, "position" bigint, event_id uuid, type text, schema_version smallint,
  format smallint, data json, metadata json, subject text, agent text, call_id text, task_id text, run_id text,
  unique_key text, recorded_at timestamptz, hash bytea,
  now timestamptz, stream_id bigint,
  found bigint -- rows there were up to p_limit: more than the page has where it was cut by size
)
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  tid   integer := tenant_of(p_tenant);
  place record;
BEGIN
  SELECT c.context_id, c.name INTO place FROM contexts c
   WHERE c.context_id = coalesce((SELECT d.context_id FROM directory d WHERE d.tenant_id = tid AND d.name = p_stream),
     (SELECT k.context_id FROM contexts k WHERE k.tenant_id = tid AND k.name = coalesce(p_context, p_stream)));
  RETURN QUERY
    SELECT place.name, r.stream, r.version, r.position, r.event_id, r.type, r.schema_version, r.format, r.data, r.metadata,
           r.subject, r.agent, r.call_id, r.task_id, r.run_id, r.unique_key, r.recorded_at, r.hash, clock_timestamp(),
           r.stream_id, r.found
      FROM (SELECT e.*, count(*) OVER () AS found,
                   sum(pg_column_size(e.data)) OVER (ORDER BY e.stream_id, e.type, e.version) - pg_column_size(e.data) AS before
              FROM (SELECT s.name AS stream, e.*
                      FROM (SELECT s.context_id, s.stream_id, s.name FROM streams s -- in order: no further than it needs
                             WHERE (s.context_id, s.stream_id) >= (place.context_id, p_after_stream)
                               AND s.context_id = place.context_id
                             ORDER BY s.context_id, s.stream_id) s
                     CROSS JOIN LATERAL (
                           SELECT * FROM events e
                            WHERE (e.context_id, e.stream_id, e.type, e.version) > (s.context_id, s.stream_id,
                                CASE WHEN s.stream_id = p_after_stream THEN p_after_type ELSE 'effect.' END,
                                CASE WHEN s.stream_id = p_after_stream THEN p_after_version ELSE 0 END)
                              AND (e.context_id, e.stream_id, e.type) < (s.context_id, s.stream_id, 'effect/')
                              AND e.type NOT IN ('item.appended', 'stream.forked')
                            ORDER BY e.context_id, e.stream_id, e.type, e.version LIMIT p_limit) e
                     LIMIT p_limit) e) r
     WHERE r.before = 0 OR r.before < 1048576
     ORDER BY r.stream_id, r.type, r.version;
END $$;
