-- What a stream's chain binds it to: the names of its tenant, context and stream.
CREATE OR REPLACE FUNCTION names_hash(
  tenant  text,
  context text,
  stream  text
) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT sha256(convert_to(json_build_array('convstore/1/stream', tenant, context, stream)::text, 'UTF8'))
$$;
