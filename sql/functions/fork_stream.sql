-- Forks: a new stream that goes on from another's version, without copying. It writes one row and one event, whatever
-- lies before. Events up to the fork point are committed and never change, so the parent is not locked.
CREATE OR REPLACE FUNCTION fork_stream(
  p_tenant   text,
  p_parent   text,
  p_name     text,       -- of the branch
  p_tags     jsonb,
  p_at       bigint,     -- the fork point; null: by one of the next three, else the head
  p_items    bigint,     -- after so many items
  p_subject  text,       -- after the first item with this id,
  p_item     uuid,       -- or the event with this one
  p_event_id uuid,       -- of the branch's first event
  p_agent    text,
  p_metadata json
) RETURNS append_result  -- outcome appended, repeated, idempotency_conflict, exists, no_parent, no_item, beyond_head
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
  more    boolean := pg_current_xact_id_if_assigned() IS NOT NULL;
  tid     integer := tenant_of(p_tenant);
  r       append_result;
  owner   record;
  sid     bigint;
  drawn   bigint;
  digest  bytea;
  body    json;
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    RAISE EXCEPTION 'synchronous_commit is off: a crash could take back events that readers were given'
      USING ERRCODE = 'CV002', HINT = 'SET synchronous_commit = on for this login';
  END IF;
  IF p_at < 0 OR p_items < 0 OR num_nonnulls(p_at, p_items, coalesce(p_subject, p_item::text)) > 1
     OR coalesce(length(p_name), 0) NOT BETWEEN 1 AND 512 OR p_event_id IS NULL OR jsonb_typeof(p_tags) <> 'object' THEN
    RAISE EXCEPTION 'a fork needs a name of 1 to 512 characters, an event id, tags in an object, and one point or none, not below 0'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  LOOP -- the index waits for who makes a stream of the same name; what was committed shows in the next statement
    r := plan_fork(tid, p_parent, p_name, p_at, p_items, p_subject, p_item, p_event_id);
    IF r.outcome IS NOT NULL THEN
      RETURN r;
    END IF;
    BEGIN -- ON CONFLICT would write 48 bytes of WAL more
      INSERT INTO directory (tenant_id, name, context_id, tags) VALUES (tid, p_name, r.context_id, coalesce(p_tags, '{}'))
        RETURNING stream_id INTO sid;
      EXIT;
    EXCEPTION WHEN unique_violation THEN
      IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'stream % was made meanwhile', quote_literal(p_name) USING ERRCODE = 'serialization_failure';
      END IF;
    END;
  END LOOP;
  SELECT c.secret, s.name, s.origin, greatest(clock_timestamp(), e.recorded_at) AS recorded_at INTO owner
    FROM streams s
    JOIN contexts c USING (context_id)
    LEFT JOIN LATERAL ( -- by order: see chain_at()
         SELECT * FROM events o
          WHERE (o.context_id, o.stream_id, o.version) >= (s.context_id, s.stream_id, r.first_version - 1)
          ORDER BY o.context_id, o.stream_id, o.version LIMIT 1) e
      ON (e.context_id, e.stream_id, e.version) = (s.context_id, s.stream_id, r.first_version - 1)
   WHERE s.context_id = r.context_id AND s.stream_id = r.stream_id;
  INSERT INTO streams (context_id, stream_id, head, control, recorded_at, tenant_id, parent_id, fork_at, fork_control, origin,
      name)
    SELECT r.context_id, sid, r.first_version, c.control, owner.recorded_at, tid, r.stream_id, r.first_version - 1,
           nullif(c.control, 0), names_hash(p_tenant, r.context, p_name), p_name
      FROM (SELECT CASE WHEN r.first_version = 1 THEN 0 ELSE control_at(r.context_id, r.stream_id, r.first_version - 1) END
           ) c (control);
  body := format('{"parent":%s,"at":%s%s}', to_json(p_parent), r.first_version - 1,
    CASE WHEN owner.name <> p_parent THEN ',"owner":' || to_json(owner.name) ELSE '' END);
  IF stamp(more) IS NULL THEN END IF;
  drawn := nextval('position');
  digest := event_hash(p_event_id, 1::smallint, 'stream.forked', NULL, NULL, p_agent, NULL, NULL, NULL,
    content_hash(owner.secret, p_event_id, 1::smallint, body, p_metadata));
  INSERT INTO events (context_id, stream_id, version, position, recorded_at, event_id, tenant_id, schema_version, format,
      hash, chain, type, agent, metadata, data)
    VALUES (r.context_id, sid, r.first_version, drawn, owner.recorded_at, p_event_id, tid, 1, 1, digest,
      append_chain(chain_at(r.context_id, r.stream_id, owner.origin, r.first_version - 1),
        names_hash(p_tenant, r.context, p_name), r.first_version, owner.recorded_at, int8send(drawn) || digest),
      'stream.forked', p_agent, p_metadata, body);
  r.outcome := 'appended';
  r.stream_id := sid;
  r.last_version := r.first_version;
  r.position := drawn;
  RETURN r;
END $$;
