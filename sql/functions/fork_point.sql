-- The version that a fork is asked for by something other than a version. Items are counted and found as they were
-- recorded, whatever was retracted since; an id is not unique, so the first that has it counts.
CREATE OR REPLACE FUNCTION fork_point(
  p_context_id bigint,
  p_stream_id  bigint,
  p_items      bigint,   -- after so many items, or
  p_subject    text,     -- after the first item or summary with this id, or
  p_event_id   uuid,     -- after the event with this id, which goes first
  OUT version  bigint,   -- null: there is none
  OUT items    bigint    -- how many there are, where p_items is more
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
  part   record;
  forks  bigint;   -- one at the beginning of a branch's own part, none of a root's
  others bigint;
  found  bigint;
BEGIN
  IF p_items IS NULL THEN
    version := coalesce(
      (SELECT e.version FROM lineage(p_context_id, p_stream_id, 1, NULL) l JOIN events e
           ON e.context_id = p_context_id AND e.stream_id = l.stream_id AND e.event_id = p_event_id
        WHERE e.version > l.after AND e.version <= l.upto),
      (SELECT min(e.version) FROM lineage(p_context_id, p_stream_id, 1, NULL) l JOIN events e
           ON e.context_id = p_context_id AND e.stream_id = l.stream_id AND e.subject = p_subject
        WHERE e.version > l.after AND e.version <= l.upto AND e.type IN ('item.appended', 'summary.appended')));
    RETURN;
  END IF;
  items := 0;
  IF p_items = 0 THEN
    version := 0;
    RETURN;
  END IF;
  FOR part IN SELECT * FROM lineage(p_context_id, p_stream_id, 1, NULL) l ORDER BY l.after LOOP
    forks := (SELECT count(*) FROM events e WHERE e.context_id = p_context_id AND e.stream_id = part.stream_id
                 AND e.version = part.after + 1 AND e.type = 'stream.forked');
    version := part.after + forks;
    LOOP -- the item wanted is at least so many versions on as are missing; what else lies between moves it on
      SELECT count(*) INTO others FROM events e
       WHERE e.context_id = p_context_id AND e.stream_id = part.stream_id AND e.type NOT IN ('item.appended', 'stream.forked')
         AND e.version > part.after AND e.version <= version;
      found := version - part.after - others - forks;
      EXIT WHEN found = p_items - items OR version = part.upto;
      version := least(version + p_items - items - found, part.upto);
    END LOOP;
    items := items + found;
    IF items = p_items THEN
      RETURN;
    END IF;
  END LOOP;
  version := NULL;
END $$;
