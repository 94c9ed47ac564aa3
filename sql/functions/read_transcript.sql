-- What a transcript is made of, in one answer: the stream as of a version, the control events up to there since the
-- newest checkpoint, and the items after the last of them, the newest first. What the ranges before
-- that hold is read by read_ranges().
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
  number bigint,          -- of the stream: its head
  type text,              -- of the stream: its context
  schema_version smallint, format smallint, data json
)
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  tid     integer := tenant_of(p_tenant);
  place   record;
  saved   record;
  at      bigint;
  control bigint;
  since   bigint := p_known;
  ids     bigint[];
  afters  bigint[];
  uptos   bigint[];
BEGIN
  SELECT d.context_id, d.stream_id, c.name AS context, s.head, s.control, coalesce(s.fork_at, 0) AS fork_at INTO place
    FROM directory d JOIN contexts c USING (context_id) JOIN streams s USING (context_id, stream_id)
   WHERE d.tenant_id = tid AND d.name = p_stream;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  at := CASE WHEN p_time IS NOT NULL THEN version_at(place.context_id, place.stream_id, p_time)
             ELSE least(p_at, place.head) END;
  control := CASE WHEN place.control <= at THEN place.control
                  WHEN at > place.fork_at THEN control_at(place.context_id, place.stream_id, at)
                  WHEN at = 0 THEN 0
                  ELSE (SELECT control_at(place.context_id, l.stream_id, at)
                          FROM lineage(place.context_id, place.stream_id, at, at) l) END;
  RETURN QUERY SELECT 0::smallint, at, place.head, place.context, NULL::smallint, NULL::smallint, NULL::json;
  IF control > 0 AND p_known IS DISTINCT FROM control THEN
    IF p_known IS NULL OR p_known > control THEN
      SELECT k.version, k.ranges INTO saved
        FROM lineage(place.context_id, place.stream_id, 1, control) l
       CROSS JOIN LATERAL (SELECT c.version, c.ranges FROM checkpoints c
                            WHERE c.context_id = place.context_id AND c.stream_id = l.stream_id AND c.version <= l.upto
                            ORDER BY c.context_id DESC, c.stream_id DESC, c.version DESC LIMIT 1) k
       LIMIT 1;
      since := coalesce(saved.version, 0);
      RETURN QUERY SELECT 1::smallint, saved.version, NULL::bigint, NULL, NULL::smallint, NULL::smallint, saved.ranges
        WHERE saved.version IS NOT NULL;
    END IF;
    RETURN QUERY
      SELECT 2::smallint, e.version, NULL::bigint, e.type, e.schema_version, e.format, e.data
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
    ids := ARRAY[place.stream_id];
    afters := ARRAY[control];
    uptos := ARRAY[at];
  ELSE
    SELECT array_agg(l.stream_id), array_agg(l.after), array_agg(l.upto) INTO ids, afters, uptos
      FROM (SELECT * FROM lineage(place.context_id, place.stream_id, control + 1, at) l ORDER BY l.after DESC) l;
  END IF;
  RETURN QUERY
    SELECT 3::smallint, r.version, NULL::bigint, r.type, r.schema_version, r.format, r.data
      FROM ranges_of(place.context_id, ids, afters, uptos, ARRAY[control + 1], ARRAY[at], ARRAY['item.appended'], p_limit) r;
END $$;
