-- The events of some types, none of them items, in order of version; on a branch also its parents'. Few among many: found by
-- an index that holds no items.
CREATE OR REPLACE FUNCTION read_types(
  p_tenant  text,
  p_stream  text,
  p_types   text[],
  p_subject text,      -- null: any
  p_at      bigint     -- up to this version; null: the head
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
    SELECT place.context, l.name, e.version, e.position, e.event_id, e.type, e.schema_version, e.format, e.data, e.metadata,
           e.subject, e.agent, e.call_id, e.task_id, e.run_id, e.unique_key, e.recorded_at, e.hash
      FROM lineage(place.context_id, place.stream_id, 1, p_at) l
     CROSS JOIN unnest(p_types) AS t (type)
     CROSS JOIN LATERAL (
           SELECT * FROM events o
            WHERE (o.context_id, o.stream_id, o.type, o.version) > (place.context_id, l.stream_id, t.type, l.after)
              AND (o.context_id, o.stream_id, o.type, o.version) <= (place.context_id, l.stream_id, t.type, l.upto)
              AND o.type NOT IN ('item.appended', 'stream.forked') AND (p_subject IS NULL OR o.subject = p_subject)
            ORDER BY o.context_id, o.stream_id, o.type, o.version OFFSET 0) e
     ORDER BY e.version;
END $$;
