-- The last version of a stream that was recorded at or before a moment; 0 where there is none. Times never go back within
-- a stream, so it is found by halving.
CREATE OR REPLACE FUNCTION version_at(
  p_context_id bigint,
  p_stream_id  bigint,
  p_time       timestamptz
) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
  part   record;
  low    bigint;   -- recorded by then
  high   bigint;   -- recorded later
  middle bigint;
BEGIN
  FOR part IN SELECT * FROM lineage(p_context_id, p_stream_id, 1, NULL) l ORDER BY l.after DESC LOOP
    low := part.after;
    high := part.upto + 1;
    WHILE high - low > 1 LOOP
      middle := (low + high) / 2;
      IF (SELECT e.recorded_at <= p_time FROM events e
           WHERE e.context_id = p_context_id AND e.stream_id = part.stream_id AND e.version = middle) THEN
        low := middle;
      ELSE
        high := middle;
      END IF;
    END LOOP;
    EXIT WHEN low > part.after;
  END LOOP;
  RETURN coalesce(low, 0);
END $$;
