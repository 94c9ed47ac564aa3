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
  others bigint;   -- what else lies before the item wanted; in all of the part, where it ends before
  most   bigint;
BEGIN
  IF p_items IS NULL THEN
    version := coalesce( -- an id of a parent's event may come again on the branch
      (SELECT min(e.version) FROM lineage(p_context_id, p_stream_id, 1, NULL) l JOIN events e
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
    forks := (SELECT count(s.parent_id) FROM streams s WHERE s.context_id = p_context_id AND s.stream_id = part.stream_id);
    others := (SELECT count(*)
                 FROM (SELECT e.version - part.after - forks - row_number() OVER (ORDER BY e.version) AS before
                         FROM (SELECT o.version FROM events o -- by order: only the index that has no items serves
                                WHERE (o.context_id, o.stream_id) >= (p_context_id, part.stream_id)
                                  AND (o.context_id, o.stream_id) <= (p_context_id, part.stream_id)
                                  AND o.type NOT IN ('item.appended', 'stream.forked')
                                ORDER BY o.context_id, o.stream_id, o.type, o.version OFFSET 0) e
                        WHERE e.version > part.after AND e.version <= part.upto) b
                WHERE b.before < p_items - items);
    most := part.upto - part.after - forks - others;
    IF most >= p_items - items THEN
      version := part.after + forks + others + p_items - items;
      items := p_items;
      RETURN;
    END IF;
    items := items + most;
  END LOOP;
END $$;
