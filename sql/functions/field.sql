-- One field of a hash's preimage: its length in bytes as a big-endian int4, then the bytes; a null is the length -1.
CREATE OR REPLACE FUNCTION field(
  t text
) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT int4send(coalesce(octet_length(t), -1)) || convert_to(coalesce(t, ''), 'UTF8')
$$;
