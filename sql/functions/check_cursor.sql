-- Refuses a cursor whose event is not in this log: a restore or a failover lost it, and its position may have been drawn
-- again, with others below it. Where the event is there, none will ever come below it (docs/restore.md). Called after the
-- read, so that what was read under an untrue cursor is not given out, however the sequence moves meanwhile.
CREATE OR REPLACE FUNCTION check_cursor(
  p_after bigint,
  p_mark  bytea    -- of the event at p_after, see event_mark(); null: not known
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET enable_seqscan = off AS $$
DECLARE
  f record;
BEGIN
  IF p_mark IS NULL OR p_after >= pg_sequence_last_value('position') THEN
    RETURN; -- nothing was drawn since, so nothing was given out
  END IF;
  SELECT event_mark(e.hash, e.recorded_at) AS mark, w.position AS complete INTO f
    FROM watermark w LEFT JOIN events e ON e.position = p_after;
  IF f.mark IS DISTINCT FROM p_mark AND (f.mark IS NOT NULL OR NOT pg_is_in_recovery() OR p_after <= f.complete) THEN
    RAISE EXCEPTION 'the event at position % that the cursor is of is not in this log; it was restored or failed over since',
      p_after USING ERRCODE = 'CV004', HINT = 'go on from an older cursor, which is checked in the same way, or from the beginning';
  END IF;
END $$;
