-- The rules of an append, up to where its rows are written: finds or creates the stream, answers a repeat, compares
-- the expected version, locks and moves the head. A refusal writes nothing. Only the append functions call it.
CREATE OR REPLACE FUNCTION advance(
  p_tenant      text,
  p_stream      text,
  p_context     text,        -- null: whatever the stream has, its own name where it is new
  p_tags        jsonb,       -- of a new stream
  p_context_id  bigint,      -- with p_stream_id: known from an earlier append; null: found by name
  p_stream_id   bigint,
  p_origin      bytea,       -- what the ids were cached for: they may belong to another stream after a restore
  p_expected    bigint,      -- null: any; 0: no event yet; -1: at least one; n: exactly
  p_n           integer,     -- how many events
  p_control_at  integer,     -- which of them is the last that changes a transcript; null: none
  p_closes      boolean,
  p_event_ids   uuid[],      -- with types, formats, datas where this may be a repeat; else null
  p_types       text[],
  p_formats     smallint[],
  p_datas       json[],
  p_unique_keys text[]       -- null: none
) RETURNS append_place
LANGUAGE plpgsql AS $$
DECLARE
  place append_place;
  r     append_result;
  tid   integer := tenant_of(p_tenant);
BEGIN
  r.context_id := p_context_id;
  r.stream_id := p_stream_id;
  IF p_stream_id IS NOT NULL AND (p_context_id IS NULL OR p_origin IS NULL) THEN
    r.outcome := 'unknown_stream'; -- ids count with the names that they were learned for
    place.result := r;
    RETURN place;
  END IF;
  LOOP
    IF p_stream_id IS NULL THEN
      place.result := find_stream(tid, p_tenant, p_stream, p_context, p_tags, p_expected, p_unique_keys);
      r := place.result;
      IF r.outcome IS NOT NULL THEN
        RETURN place;
      END IF;
      tid := coalesce(tid, tenant_of(p_tenant));
    END IF;
    IF cardinality(p_unique_keys) > 0 THEN
      -- Who claims keys in a context does so one after the other: a rival in flight is waited for here, holding nothing,
      -- and is seen by the update below, so that the loser gets an answer and not a unique index's error.
      PERFORM FROM contexts WHERE context_id = r.context_id AND tenant_id = tid FOR NO KEY UPDATE;
    END IF;
    IF p_control_at > 0 OR p_closes THEN
      -- So that the update below does not wait, and after_wait() has nothing to take back.
      PERFORM FROM streams WHERE context_id = r.context_id AND stream_id = r.stream_id FOR UPDATE;
    END IF;
    UPDATE streams s
       SET head = s.head + p_n,
           control = CASE WHEN p_control_at > 0 THEN s.head + p_control_at ELSE s.control END,
           recorded_at = greatest(clock_timestamp(), s.recorded_at),
           closed = p_closes
     WHERE s.context_id = r.context_id AND s.stream_id = r.stream_id AND s.tenant_id = tid
       AND (p_stream_id IS NULL OR s.origin = p_origin) AND NOT s.closed
       AND (p_expected IS NULL OR s.head = p_expected OR p_expected = -1 AND s.head > 0)
       AND (p_event_ids IS NULL OR NOT EXISTS (
             SELECT FROM unnest(p_event_ids) AS u (id) CROSS JOIN LATERAL (
               SELECT e.context_id, e.stream_id, e.event_id FROM events e -- by order: see find_repeat()
                WHERE (e.context_id, e.stream_id, e.event_id) >= (s.context_id, s.stream_id, u.id)
                ORDER BY e.context_id, e.stream_id, e.event_id LIMIT 1) e
              WHERE e.context_id = s.context_id AND e.stream_id = s.stream_id AND e.event_id = u.id))
       AND (p_unique_keys IS NULL OR NOT EXISTS (
             SELECT FROM events e WHERE e.context_id = s.context_id AND e.unique_key = ANY (p_unique_keys)))
    RETURNING s.head, s.recorded_at, s.origin, s.secret,
              (SELECT e.chain FROM events e WHERE e.context_id = s.context_id AND e.stream_id = s.stream_id
                  AND e.version BETWEEN s.head - p_n AND s.head ORDER BY e.version LIMIT 1)
         INTO r.last_version, place.recorded_at, place.origin, place.secret, place.previous;
    IF NOT FOUND THEN
      place.result := why_refused(tid, r.context_id, r.stream_id, CASE WHEN p_stream_id IS NOT NULL THEN p_origin END,
        p_expected, p_event_ids, p_types, p_formats, p_datas, p_unique_keys);
      place.result.context := r.context;
      CONTINUE WHEN (place.result).outcome IS NULL;
      RETURN place;
    END IF;
    r.first_version := r.last_version - p_n + 1;
    r.outcome := 'appended';
    place.tenant_id := tid;
    place.result := r;
    IF place.previous IS NULL AND r.first_version > 1 THEN
      RETURN after_wait(place, p_event_ids, p_types, p_formats, p_datas);
    END IF;
    RETURN place;
  END LOOP;
END $$;
