-- One fold an append: the stream's chain after it. Preimage: docs/hashing.md.
CREATE OR REPLACE FUNCTION append_chain(
  previous      bytea,       -- the chain before; null for a stream's first append
  origin        bytea,       -- sha256 of the names of tenant, context and stream
  first_version bigint,
  recorded_at   timestamptz,
  rows          bytea        -- position and hash of each event, in order
) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT sha256('convstore/1/append'::bytea || origin || int8send(first_version) || timestamptz_send(recorded_at)
    || coalesce(previous, ''::bytea) || rows)
$$;
