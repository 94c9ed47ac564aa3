-- Tells readers of the feed that positions beyond the sequence's last value may be in flight. Taken after the
-- stream's row lock and before a position is drawn; held until the transaction ends. The proof: docs/feed.md.
CREATE OR REPLACE FUNCTION stamp(
  more boolean   -- the transaction has written before: remember the stamp, so that it takes one lock, not one an append
) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  k bigint := coalesce(pg_sequence_last_value('position'), 0); -- reading the sequence as a table would be a dirty read
  m text;
BEGIN
  IF more THEN
    m := current_setting('convstore.stamp', true);
    IF m ~ '^[0-9]{1,18}$' AND m::bigint <= k THEN
      k := m::bigint; -- anyone can set it: lower only delays, higher is replaced
    ELSE
      m := set_config('convstore.stamp', k::text, true);
    END IF;
  END IF;
  IF pg_advisory_xact_lock_shared(4996180836614144000 | k) IS NULL THEN END IF; -- 17750 << 48; cheaper than PERFORM
END $$;
