-- Appends one event: one durable round trip.
CREATE OR REPLACE FUNCTION append_event(
  p_tenant         text,
  p_stream         text,
  p_context        text,      -- see advance() for these
  p_tags           jsonb,
  p_context_id     bigint,
  p_stream_id      bigint,
  p_origin         bytea,
  p_expected       bigint,
  p_may_repeat     boolean,   -- a key or ids were given, or this call was sent before: look for the id first
  p_event_id       uuid,
  p_schema_version smallint,
  p_format         smallint,
  p_type           text,
  p_subject        text,
  p_agent          text,
  p_call_id        text,
  p_task_id        text,
  p_run_id         text,
  p_unique_key     text,
  p_metadata       json,
  p_data           json
) RETURNS append_result
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, convstore, pg_temp AS $$
DECLARE
  more  boolean := pg_current_xact_id_if_assigned() IS NOT NULL;
  place append_place;
  r     append_result;
  hash  bytea;
BEGIN
  IF p_may_repeat THEN
    place := advance(p_tenant, p_stream, p_context, p_tags, p_context_id, p_stream_id, p_origin, p_expected, 1,
      CASE WHEN p_type IN ('history.compacted', 'items.retracted', 'history.cleared') THEN 1 END, p_type = 'stream.closed',
      ARRAY[p_event_id], ARRAY[p_type], ARRAY[p_format], ARRAY[p_data],
      CASE WHEN p_unique_key IS NOT NULL THEN ARRAY[p_unique_key] END);
  ELSE
    place := advance(p_tenant, p_stream, p_context, p_tags, p_context_id, p_stream_id, p_origin, p_expected, 1,
      CASE WHEN p_type IN ('history.compacted', 'items.retracted', 'history.cleared') THEN 1 END, p_type = 'stream.closed',
      NULL, NULL, NULL, NULL,
      CASE WHEN p_unique_key IS NOT NULL THEN ARRAY[p_unique_key] END);
  END IF;
  r := place.result;
  IF r.outcome <> 'appended' THEN
    RETURN r;
  END IF;
  IF stamp(more) IS NULL THEN END IF;
  r.position := nextval('position');
  hash := event_hash(p_event_id, p_schema_version, p_type, p_subject, p_unique_key, p_agent, p_call_id, p_task_id, p_run_id,
    p_metadata, data_hash(place.secret, p_event_id, p_format, p_data));
  INSERT INTO events (context_id, stream_id, version, position, recorded_at, event_id, tenant_id, schema_version, format,
      hash, chain, type, subject, agent, call_id, task_id, run_id, unique_key, metadata, data)
    VALUES (r.context_id, r.stream_id, r.last_version, r.position, place.recorded_at, p_event_id, place.tenant_id,
      p_schema_version, p_format, hash,
      append_chain(place.previous, place.origin, r.first_version, place.recorded_at, int8send(r.position) || hash),
      p_type, p_subject, p_agent, p_call_id, p_task_id, p_run_id, p_unique_key, p_metadata, p_data);
  RETURN r;
END $$;
