-- The rules of an append, up to where its rows are written: finds or creates the stream, answers a repeat, locks,
-- compares the expected version, moves the head. A refusal writes nothing. Only the append functions call it.
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
LANGUAGE plpgsql SET search_path = pg_catalog, convstore, pg_temp AS $$
#variable_conflict use_column
DECLARE
  place append_place;
  r     append_result;
  tid   integer := tenant_of(p_tenant);
  head  bigint;
  done  boolean;
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    RAISE EXCEPTION 'synchronous_commit is off: a crash could take back events that readers were given'
      USING ERRCODE = 'CV002', HINT = 'SET synchronous_commit = on for this login';
  END IF;
  r.context_id := p_context_id;
  r.stream_id := p_stream_id;
  LOOP
    IF p_stream_id IS NULL THEN
      SELECT d.context_id, d.stream_id, c.name INTO r.context_id, r.stream_id, r.context
        FROM directory d JOIN contexts c USING (context_id) WHERE d.tenant_id = tid AND d.name = p_stream;
      IF NOT FOUND AND p_expected <> 0 THEN
        r.outcome := 'version_conflict';
        r.actual := 0;
        EXIT;
      ELSIF NOT FOUND THEN
        PERFORM create_stream(p_tenant, coalesce(p_context, p_stream), p_stream, p_tags);
        tid := tenant_of(p_tenant);
        CONTINUE;
      ELSIF r.context <> p_context THEN -- p_context null: as it is
        r.outcome := 'context_mismatch';
        r.detail := r.context;
        EXIT;
      END IF;
    END IF;
    IF p_event_ids IS NOT NULL THEN
      -- The lock is a statement of its own: the next one sees what was committed while this one waited.
      PERFORM FROM streams s WHERE s.context_id = r.context_id AND s.stream_id = r.stream_id AND s.tenant_id = tid
         AND (p_stream_id IS NULL OR s.origin = p_origin) FOR UPDATE;
      IF NOT FOUND THEN
        r.outcome := 'unknown_stream';
        EXIT;
      END IF;
      place.result := find_repeat(r.context_id, r.stream_id, p_event_ids, p_types, p_formats, p_datas);
      IF (place.result).outcome IS NOT NULL THEN
        place.result.context := r.context;
        RETURN place;
      END IF;
    END IF;
    IF p_unique_keys IS NOT NULL THEN
      SELECT e.unique_key INTO r.detail FROM events e
       WHERE e.context_id = r.context_id AND e.unique_key = ANY (p_unique_keys) LIMIT 1;
      IF FOUND THEN
        r.outcome := 'unique_key';
        EXIT;
      END IF;
    END IF;
    UPDATE streams s
       SET head = s.head + p_n,
           control = CASE WHEN p_control_at IS NULL THEN s.control ELSE s.head + p_control_at END,
           recorded_at = greatest(clock_timestamp(), s.recorded_at),
           closed = p_closes
     WHERE s.context_id = r.context_id AND s.stream_id = r.stream_id AND s.tenant_id = tid
       AND (p_stream_id IS NULL OR s.origin = p_origin) AND NOT s.closed
       AND (p_expected IS NULL OR s.head = p_expected OR p_expected = -1 AND s.head > 0)
    RETURNING s.head, s.recorded_at, s.origin INTO r.last_version, place.recorded_at, place.origin;
    IF FOUND THEN
      r.outcome := 'appended';
      r.first_version := r.last_version - p_n + 1;
      place.tenant_id := tid;
      SELECT c.secret, e.chain INTO place.secret, place.previous
        FROM contexts c LEFT JOIN events e
          ON e.context_id = r.context_id AND e.stream_id = r.stream_id AND e.version = r.first_version - 1
       WHERE c.context_id = r.context_id;
      EXIT;
    END IF;
    SELECT s.head, s.closed INTO r.actual, done
      FROM streams s WHERE s.context_id = r.context_id AND s.stream_id = r.stream_id AND s.tenant_id = tid
       AND (p_stream_id IS NULL OR s.origin = p_origin);
    IF NOT FOUND THEN
      r.outcome := 'unknown_stream';  -- the ids are not those of this name: ask again by name
      EXIT;
    ELSIF done THEN
      r.outcome := 'closed';
      EXIT;
    ELSIF p_expected <> r.actual AND NOT (p_expected = -1 AND r.actual > 0) THEN
      r.outcome := 'version_conflict';
      EXIT;
    END IF; -- else the head moved to what is expected in between
  END LOOP;
  place.result := r;
  RETURN place;
END $$;
