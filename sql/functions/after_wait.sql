-- The rest of an append that waited for another: the row that it moved is newer than the snapshot in which it looked for
-- the chain and the ids. A new statement sees all that the stream has, now that the row is ours.
CREATE OR REPLACE FUNCTION after_wait(
  place       append_place,
  p_event_ids uuid[],        -- as in advance()
  p_types     text[],
  p_formats   smallint[],
  p_datas     json[]
) RETURNS append_place       -- with the chain before, or taken back, with the result of the first such append
LANGUAGE plpgsql AS $$
DECLARE
  r     append_result := place.result;
  known append_result;
BEGIN
  SELECT chain INTO place.previous FROM events
   WHERE context_id = r.context_id AND stream_id = r.stream_id AND version BETWEEN r.first_version - 1 AND r.last_version
   ORDER BY version LIMIT 1;
  IF p_event_ids IS NULL THEN
    RETURN place;
  END IF;
  known := find_repeat(r.context_id, r.stream_id, p_event_ids, p_types, p_formats, p_datas, r.first_version - 1);
  IF known.outcome IS NOT NULL THEN -- an event that moves control or closes has locked before it looked
    UPDATE streams s SET head = e.version, recorded_at = e.recorded_at FROM events e
     WHERE s.context_id = r.context_id AND s.stream_id = r.stream_id
       AND e.context_id = s.context_id AND e.stream_id = s.stream_id AND e.version = r.first_version - 1;
    known.context := r.context;
    place.result := known;
  END IF;
  RETURN place;
END $$;
