-- One event of a stream: by its id among the stream's own, since a branch does not answer for its parents' keys; or the
-- last one of a type, on a branch also among its parents', perhaps of those about a subject.
CREATE OR REPLACE FUNCTION find_event(
  p_tenant   text,
  p_stream   text,
  p_event_id uuid,      -- this, or
  p_type     text,      -- these
  p_subject  text,      -- null: any
  p_at       bigint     -- at or before this version; null: any
) RETURNS TABLE (
  context text, stream text, version bigint, "position" bigint, event_id uuid, type text, schema_version smallint,
  format smallint, data json, metadata json, subject text, agent text, call_id text, task_id text, run_id text,
  unique_key text, recorded_at timestamptz, hash bytea
)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  tid   integer := tenant_of(p_tenant);
  place record;
BEGIN
  SELECT d.context_id, d.stream_id, c.name AS context INTO place
    FROM directory d JOIN contexts c USING (context_id) WHERE d.tenant_id = tid AND d.name = p_stream;
  RETURN QUERY
    SELECT place.context, f.name, e.version, e.position, e.event_id, e.type, e.schema_version, e.format, e.data, e.metadata,
           e.subject, e.agent, e.call_id, e.task_id, e.run_id, e.unique_key, e.recorded_at, e.hash
      FROM (SELECT p_stream AS name, x.version, place.stream_id
              FROM (SELECT v.context_id, v.stream_id, v.event_id, v.version FROM events v -- by order: see find_repeat()
                     WHERE (v.context_id, v.stream_id, v.event_id) >= (place.context_id, place.stream_id, p_event_id)
                     ORDER BY v.context_id, v.stream_id, v.event_id LIMIT 1) x
             WHERE x.context_id = place.context_id AND x.stream_id = place.stream_id AND x.event_id = p_event_id
            UNION ALL
            (SELECT l.name, v.version, l.stream_id
               FROM lineage(place.context_id, place.stream_id, 1, p_at) l
               JOIN events v ON v.context_id = place.context_id AND v.subject = p_subject AND v.stream_id = l.stream_id
              WHERE p_event_id IS NULL AND v.type = p_type AND v.version > l.after AND v.version <= l.upto
              ORDER BY v.version DESC LIMIT 1)
            UNION ALL
            (SELECT l.name, v.version, l.stream_id
               FROM lineage(place.context_id, place.stream_id, 1, p_at) l
              CROSS JOIN LATERAL (
                    SELECT o.version FROM events o
                     WHERE (o.context_id, o.stream_id, o.type, o.version) <= (place.context_id, l.stream_id, p_type, l.upto)
                       AND (o.context_id, o.stream_id, o.type, o.version) > (place.context_id, l.stream_id, p_type, l.after)
                       AND o.type NOT IN ('item.appended', 'stream.forked')
                     ORDER BY o.context_id DESC, o.stream_id DESC, o.type DESC, o.version DESC LIMIT 1) v
              WHERE p_event_id IS NULL AND p_subject IS NULL
              LIMIT 1)) f
      JOIN events e ON e.context_id = place.context_id AND e.stream_id = f.stream_id AND e.version = f.version;
END $$;
