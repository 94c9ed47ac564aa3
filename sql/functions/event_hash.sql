-- The hash of one event; its place in the stream and the log enters the chain. Preimage: docs/hashing.md. A JSON array
-- instead of prefixed fields, because each operator in an expression costs a look-up of rights at every call.
CREATE OR REPLACE FUNCTION event_hash(
  event_id       uuid,
  schema_version smallint,
  type           text,
  subject        text,
  unique_key     text,
  agent          text,
  call_id        text,
  task_id        text,
  run_id         text,
  content_hash   bytea
) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT sha256(content_hash || convert_to(json_build_array(
    'convstore/1', event_id, schema_version, type, subject, unique_key, agent, call_id, task_id, run_id)::text, 'UTF8'))
$$;
