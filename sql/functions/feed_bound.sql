-- Up to which position nothing can come any more: the last value drawn, or less where a stamp is held. The order of the
-- two reads is the proof (docs/feed.md): a writer stamps before it draws, so a stamp missed here was followed by a draw
-- above p_drawn. What is read by the bound has to be read in a later snapshot, so by another statement.
CREATE OR REPLACE FUNCTION feed_bound(
  p_after   bigint,   -- the reader's cursor; where nothing was drawn since, the locks are not looked at
  OUT drawn bigint,   -- H: the last position drawn
  OUT bound bigint    -- min(H, K): K is the smallest stamp held
)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  drawn := coalesce(pg_sequence_last_value('position'), 0); -- reading the sequence as a table would be a dirty read
  bound := drawn;
  IF p_after = drawn THEN
    RETURN;
  END IF;
  SELECT least(drawn, min((l.classid::bigint & 65535) << 32 | l.objid::bigint)) INTO bound
    FROM pg_locks l
   WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND l.classid::bigint >> 16 = 17750
     AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database());
END $$;
