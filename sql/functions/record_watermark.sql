-- Says on the primary up to where the feed is complete, for stand-bys to read up to. Run it every second or so.
CREATE OR REPLACE FUNCTION record_watermark() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET enable_seqscan = off AS $$
DECLARE
  f    record;
  mark bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'the watermark can''t be recorded at isolation level %', current_setting('transaction_isolation')
      USING ERRCODE = 'CV003', HINT = 'do it at READ COMMITTED';
  END IF;
  SELECT * INTO f FROM feed_bound(-1);
  -- That of a committed event, not the bound: after a crash, values below a bound may be drawn again.
  UPDATE watermark w
     SET position = greatest(w.position, (SELECT max(e.position) FROM events e WHERE e.position <= f.bound)),
         recorded_at = clock_timestamp()
  RETURNING w.position INTO mark;
  RETURN mark;
END $$;
