-- Tells an event from any other at its position, also from the same one appended again. The client makes it too.
CREATE OR REPLACE FUNCTION event_mark(
  p_hash        bytea,
  p_recorded_at timestamptz
) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT substr(p_hash, 1, 4) || substr(timestamptz_send(p_recorded_at), 5)
$$;
