-- A stream's chain as of one of its own versions: what the last append up to there left, or, inside of an append, the
-- fold of that append's rows up to there. A branch folds on from it.
CREATE OR REPLACE FUNCTION chain_at(
  p_context_id bigint,
  p_stream_id  bigint,   -- the stream that owns the version
  p_origin     bytea,    -- its
  p_version    bigint    -- 0: before the first event
) RETURNS bytea
LANGUAGE plpgsql STABLE AS $$
DECLARE
  e        record;
  previous record;
BEGIN
  -- By order, not by equality: so only the primary key serves, also on a table without statistics, where a part of the
  -- index on ids would seem as good and read the whole stream.
  SELECT context_id, stream_id, version, chain, recorded_at INTO e FROM events
   WHERE (context_id, stream_id, version) >= (p_context_id, p_stream_id, p_version)
   ORDER BY context_id, stream_id, version LIMIT 1;
  IF (e.context_id, e.stream_id, e.version) IS DISTINCT FROM (p_context_id, p_stream_id, p_version) THEN
    RETURN NULL;
  ELSIF e.chain IS NOT NULL THEN
    RETURN e.chain;
  END IF;
  SELECT version, chain INTO previous FROM events
   WHERE (context_id, stream_id, version) < (p_context_id, p_stream_id, p_version)
     AND (context_id, stream_id, version) >= (p_context_id, p_stream_id, 1::bigint) AND chain IS NOT NULL
   ORDER BY context_id DESC, stream_id DESC, version DESC LIMIT 1;
  RETURN append_chain(previous.chain, p_origin, coalesce(previous.version, 0) + 1, e.recorded_at,
    (SELECT string_agg(int8send(r.position) || r.hash, '' ORDER BY r.version)
       FROM (SELECT version, position, hash FROM events
              WHERE (context_id, stream_id, version) > (p_context_id, p_stream_id, coalesce(previous.version, 0))
                AND (context_id, stream_id, version) <= (p_context_id, p_stream_id, p_version)
              ORDER BY context_id, stream_id, version LIMIT p_version - coalesce(previous.version, 0)) r));
END $$;
