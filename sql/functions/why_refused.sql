-- Why an append did not move its stream's head; the reasons in the order in which they count. Each statement sees what
-- was committed before it. The outcome is null where what was in the way has gone meanwhile: try again.
CREATE OR REPLACE FUNCTION why_refused(
  p_tenant_id   integer,
  p_context_id  bigint,
  p_stream_id   bigint,
  p_origin      bytea,       -- null: any
  p_expected    bigint,      -- these as in advance()
  p_event_ids   uuid[],
  p_types       text[],
  p_formats     smallint[],
  p_datas       json[],
  p_unique_keys text[]
) RETURNS append_result
LANGUAGE plpgsql AS $$
DECLARE
  r    append_result;
  done boolean;
BEGIN
  SELECT head, closed INTO r.actual, done FROM streams
   WHERE context_id = p_context_id AND stream_id = p_stream_id AND tenant_id = p_tenant_id
     AND (p_origin IS NULL OR origin = p_origin);
  IF NOT FOUND THEN
    r.outcome := 'unknown_stream'; -- the ids are not those of this name: ask again by name
    RETURN r;
  END IF;
  IF p_event_ids IS NOT NULL THEN
    r := find_repeat(p_context_id, p_stream_id, p_event_ids, p_types, p_formats, p_datas, r.actual);
    IF r.outcome IS NOT NULL THEN
      RETURN r;
    END IF;
  END IF;
  r.context_id := p_context_id;
  r.stream_id := p_stream_id;
  IF done THEN
    r.outcome := 'closed';
  ELSIF p_expected <> r.actual AND NOT (p_expected = -1 AND r.actual > 0) THEN
    r.outcome := 'version_conflict';
  ELSE
    SELECT unique_key INTO r.detail FROM events
     WHERE context_id = p_context_id AND unique_key = ANY (p_unique_keys) LIMIT 1;
    IF FOUND THEN
      r.outcome := 'unique_key';
    END IF;
  END IF;
  RETURN r;
END $$;
