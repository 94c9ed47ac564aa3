-- Whether a view's build is the live one in the snapshot that reads it; always, but in a transaction whose snapshot is older
-- than the switch: it would see the new build half-made, so it is refused and can be run again.
CREATE OR REPLACE FUNCTION build_shown(
  p_build integer
) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, convstore, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM projections WHERE build = p_build AND state = 'live') THEN
    RAISE EXCEPTION 'the view was switched to another build after this transaction''s snapshot was taken'
      USING ERRCODE = 'serialization_failure', HINT = 'run the transaction again';
  END IF;
  RETURN true;
END $$;
