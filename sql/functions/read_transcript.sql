-- What a transcript is made of: the stream as of a version, the control events up to there since the newest checkpoint,
-- and the items after the last of them, the newest first. What the ranges before hold is read by read_ranges().
CREATE OR REPLACE FUNCTION read_transcript(
  p_tenant text,
  p_stream text,
  p_at     bigint,        -- as of this version; null: the head
  p_time   timestamptz,   -- as of this moment instead
  p_known  bigint,        -- the caller knows the ranges as of this control event; null: none
  p_limit  bigint         -- items at most, the last ones; null: all
) RETURNS TABLE (
  kind smallint,          -- 0: the stream, once; 1: the checkpoint; 2: a control event; 3: an item
  version bigint,
  format smallint,
  data json               -- of the stream [head, context, closed], of a control event [type, schema_version, data]
)
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  place   record;
  saved   record;
  at      bigint;
  control bigint;
  since   bigint := p_known;
BEGIN
  SELECT d.context_id, d.stream_id, c.name AS context, s.head, s.closed, s.control, coalesce(s.fork_at, 0) AS fork_at INTO place
    FROM tenants t JOIN directory d ON d.tenant_id = t.tenant_id AND d.name = p_stream
    JOIN contexts c ON c.context_id = d.context_id
    JOIN streams s ON s.context_id = d.context_id AND s.stream_id = d.stream_id
   WHERE t.name = p_tenant
     AND EXISTS (SELECT FROM tenant_logins l WHERE l.login = session_user AND l.tenant_id IN (0, t.tenant_id));
  IF NOT FOUND THEN
    PERFORM tenant_of(p_tenant); -- says so where the login may not ask
    RETURN;
  END IF;
  at := least(p_at, place.head);
  IF p_time IS NOT NULL THEN
    at := version_at(place.context_id, place.stream_id, p_time);
  END IF;
  control := place.control;
  IF control > at THEN
    control := coalesce((SELECT control_at(place.context_id, l.stream_id, at)
                           FROM lineage(place.context_id, place.stream_id, at, at) l), 0);
  END IF;
  kind := 0;
  version := at;
  data := json_build_array(place.head, place.context, place.closed);
  RETURN NEXT;
  IF control > 0 AND p_known IS DISTINCT FROM control THEN
    IF p_known IS NULL OR p_known > control THEN
      SELECT k.version, k.ranges INTO saved
        FROM lineage(place.context_id, place.stream_id, 1, control) l
       CROSS JOIN LATERAL (SELECT c.version, c.ranges FROM checkpoints c
                            WHERE c.context_id = place.context_id AND c.stream_id = l.stream_id AND c.version <= l.upto
                            ORDER BY c.context_id DESC, c.stream_id DESC, c.version DESC LIMIT 1) k
       LIMIT 1;
      since := coalesce(saved.version, 0);
      RETURN QUERY SELECT 1::smallint, saved.version, NULL::smallint, saved.ranges WHERE saved.version IS NOT NULL;
    END IF;
    RETURN QUERY
      SELECT 2::smallint, e.version, e.format, format('["%s",%s,%s]', e.type, e.schema_version, e.data)::json
        FROM lineage(place.context_id, place.stream_id, since + 1, control) l
       CROSS JOIN unnest(ARRAY['history.cleared', 'history.compacted', 'items.retracted']) AS t (type)
       CROSS JOIN LATERAL (
             SELECT * FROM events o
              WHERE (o.context_id, o.stream_id, o.type, o.version)
                    > (place.context_id, l.stream_id, t.type, greatest(l.after, since))
                AND (o.context_id, o.stream_id, o.type, o.version) <= (place.context_id, l.stream_id, t.type, l.upto)
                AND o.type NOT IN ('item.appended', 'stream.forked')
              ORDER BY o.context_id, o.stream_id, o.type, o.version OFFSET 0) e
       ORDER BY e.version;
  END IF;
  IF control >= place.fork_at THEN
    RETURN QUERY
      SELECT 3::smallint, e.version, e.format, e.data
        FROM events e
       WHERE e.context_id = place.context_id AND e.stream_id = place.stream_id AND e.version > control AND e.version <= at
         AND e.type = 'item.appended'
       ORDER BY e.context_id DESC, e.stream_id DESC, e.version DESC LIMIT p_limit;
    RETURN;
  END IF;
  RETURN QUERY
    SELECT 3::smallint, r.version, r.format, r.data
      FROM tail_of(place.context_id, place.stream_id, control + 1, at, p_limit) r;
END $$;
