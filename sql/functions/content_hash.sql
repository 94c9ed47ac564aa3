-- The salted hash through which an event's data and metadata enter its hash: it can stand in for them once they were
-- removed, and without the context's secret short contents can't be guessed from it.
CREATE OR REPLACE FUNCTION content_hash(
  secret   bytea,     -- the context's
  event_id uuid,
  format   smallint,
  data     json,
  metadata json
) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT sha256(sha256(secret || uuid_send(event_id)) || int2send(format)
    || convert_to(json_build_array(data, metadata)::text, 'UTF8'))
$$;
