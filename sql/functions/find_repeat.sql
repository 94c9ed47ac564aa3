-- What the log already holds of a batch. An exact repeat has all its ids known, contiguous, in order, with equal
-- type and data, and begins and ends where an append did. Metadata is not compared: trace ids differ on retries.
CREATE OR REPLACE FUNCTION find_repeat(
  p_context_id bigint,
  p_stream_id  bigint,
  p_event_ids  uuid[],
  p_types      text[],
  p_formats    smallint[],
  p_datas      json[],
  p_head       bigint
) RETURNS append_result  -- its outcome is null where nothing is known
LANGUAGE plpgsql AS $$
DECLARE
  r    append_result;
  hits bigint;
  ord  bigint;
BEGIN
  r.actual := p_head;
  SELECT count(*), min(e.version), max(e.version), max(e.position)
    INTO hits, r.first_version, r.last_version, r.position
    FROM unnest(p_event_ids) AS u (id)
   CROSS JOIN LATERAL ( -- by order, not by equality: so only the index on ids serves, also on a table without statistics,
                        -- where a part of the primary key would seem as good and read the whole stream
         SELECT context_id, stream_id, event_id, version, position FROM events
          WHERE (context_id, stream_id, event_id) >= (p_context_id, p_stream_id, u.id)
          ORDER BY context_id, stream_id, event_id LIMIT 1) e
   WHERE e.context_id = p_context_id AND e.stream_id = p_stream_id AND e.event_id = u.id;
  IF hits = 0 THEN
    RETURN r;
  END IF;
  r.outcome := 'idempotency_conflict';
  r.context_id := p_context_id;
  r.stream_id := p_stream_id;
  IF hits < cardinality(p_event_ids) THEN
    r.detail := format('%s of the %s events given are known', hits, cardinality(p_event_ids));
    RETURN r;
  END IF;
  SELECT min(u.ord) INTO ord
    FROM unnest(p_event_ids, p_types, p_formats, p_datas) WITH ORDINALITY AS u (event_id, type, format, data, ord)
   CROSS JOIN LATERAL (
         SELECT version, type, format, data FROM events
          WHERE (context_id, stream_id, event_id) >= (p_context_id, p_stream_id, u.event_id)
          ORDER BY context_id, stream_id, event_id LIMIT 1) e
   WHERE e.version <> r.first_version + u.ord - 1 OR e.type <> u.type
      OR e.format <> u.format OR e.data::text <> u.data::text;
  IF ord IS NOT NULL THEN
    r.detail := format('event %s of the batch has another place, type or data', ord - 1);
    RETURN r;
  END IF;
  IF EXISTS (SELECT FROM unnest(ARRAY[r.first_version - 1, r.last_version]) AS u (version)
              CROSS JOIN LATERAL (
                    SELECT chain FROM events
                     WHERE (context_id, stream_id, version) >= (p_context_id, p_stream_id, u.version)
                     ORDER BY context_id, stream_id, version LIMIT 1) e
              WHERE u.version > 0 AND e.chain IS NULL) THEN
    r.detail := 'the events given are a part of a longer append';
    RETURN r;
  END IF;
  r.outcome := 'repeated';
  RETURN r;
END $$;
