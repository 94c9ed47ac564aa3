-- The hash of one event's content; its place in the stream and the log enters the chain. Preimage: docs/hashing.md.
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
  metadata       json,
  data_hash      bytea
) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT sha256('convstore/1'::bytea || uuid_send(event_id) || int2send(schema_version)
    || field(type) || field(subject) || field(unique_key) || field(agent) || field(call_id) || field(task_id) || field(run_id)
    || sha256(convert_to(coalesce(metadata::text, ''), 'UTF8')) || data_hash)
$$;
