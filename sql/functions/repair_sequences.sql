-- Makes a log safe to write to after a restore, a failover or a change of its sequences: all positions drawn from now on
-- are far above any that a cursor could name, and those cursors are refused. ALTER SEQUENCE waits for every transaction
-- that drew or read a position, prepared ones included, and holds off new ones until the commit; all is undone with it.
CREATE OR REPLACE FUNCTION repair_sequences(
  OUT faults      text[],   -- as sequence_faults() found them
  OUT done        text[],   -- what was changed, a line each
  OUT reached     bigint,   -- all positions drawn from now on are above this one
  OUT incarnation uuid
)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, convstore, pg_temp AS $$
#variable_conflict use_column
DECLARE
  jump  constant bigint := 1000000000;
  most  constant bigint := 281474976710655; -- 2^48 - 1
  drawn bigint;
  event bigint;
  old   bigint;
  f     record;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'the sequences can''t be repaired at isolation level %', current_setting('transaction_isolation')
      USING ERRCODE = 'CV003', HINT = 'do it at READ COMMITTED';
  END IF;
  IF to_regclass('convstore.position') IS NULL THEN
    faults := ARRAY(SELECT sequence_faults());
    CREATE SEQUENCE convstore.position MINVALUE 0;
    EXECUTE format('ALTER SEQUENCE convstore.position OWNER TO %s',
      (SELECT relowner::regrole FROM pg_class WHERE oid = 'convstore.events'::regclass));
  ELSE
    ALTER SEQUENCE convstore.position OWNED BY NONE; -- changes nothing: it takes the lock
    faults := ARRAY(SELECT sequence_faults());
  END IF;
  drawn := pg_sequence_last_value('convstore.position');
  event := (SELECT max(e.position) FROM events e);
  reached := greatest(drawn, event, 0) + jump;
  IF reached >= most THEN
    RAISE EXCEPTION 'no room for a jump: % and % more is not below %, the last position', reached - jump, jump, most
      USING ERRCODE = 'CV005', HINT = format('the last event is at position %s; where the sequence was only set too high, '
        'set it to that by hand and repair again', coalesce(event, 0));
  END IF;
  EXECUTE format('ALTER SEQUENCE convstore.position AS bigint INCREMENT 1 MINVALUE 0 MAXVALUE %s START 0 RESTART %s'
    ' CACHE 1 NO CYCLE', most, reached);
  ALTER SEQUENCE convstore.position SET LOGGED;
  PERFORM nextval('convstore.position'); -- so that the last value is one that was drawn
  IF array_to_string(faults, '; ') ~ 'position (has .* instead of|does not exist)' THEN
    done := ARRAY['sequence position made bigint, logged, 0 to ' || most || ', INCREMENT 1, CACHE 1, NO CYCLE'];
  END IF;
  done := array_append(done, format('sequence position set from %s to %s; the last event is at %s',
    coalesce(drawn::text, 'its start'), reached, coalesce(event, 0)));
  FOR f IN
    SELECT 'tenants_tenant_id_seq' AS name, (SELECT max(tenant_id) FROM tenants)::bigint AS id
    UNION ALL SELECT 'contexts_context_id_seq', (SELECT max(context_id) FROM contexts)
    UNION ALL SELECT 'directory_stream_id_seq', (SELECT max(stream_id) FROM streams)
  LOOP
    old := pg_sequence_last_value(format('convstore.%I', f.name)::regclass);
    CONTINUE WHEN f.id IS NULL OR old >= f.id;
    EXECUTE format('ALTER SEQUENCE convstore.%I RESTART %s', f.name, f.id + 1);
    PERFORM nextval(format('convstore.%I', f.name)::regclass);
    done := array_append(done, format('sequence %s set from %s to %s', f.name, coalesce(old::text, 'its start'), f.id + 1));
  END LOOP;
  -- Nobody is in flight, so the feed is complete up to the last event.
  SELECT w.position INTO old FROM watermark w;
  UPDATE watermark SET position = coalesce(event, 0), recorded_at = clock_timestamp();
  IF old <> coalesce(event, 0) THEN
    done := array_append(done, format('watermark set from %s to %s', old, coalesce(event, 0)));
  END IF;
  UPDATE store SET incarnation = gen_random_uuid() RETURNING store.incarnation INTO incarnation;
  done := array_append(done, format('incarnation %s begun: cursors made before are refused', incarnation));
END $$;
