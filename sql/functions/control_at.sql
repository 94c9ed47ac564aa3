-- The last version at or before p_version, in a stream's own part, that changes a transcript; what it inherited where
-- there is none.
CREATE OR REPLACE FUNCTION control_at(
  p_context_id bigint,
  p_stream_id  bigint,   -- the stream that owns the version
  p_version    bigint
) RETURNS bigint
LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN s.control <= p_version THEN s.control ELSE coalesce(
           (SELECT max(e.version)
              FROM unnest(ARRAY['history.cleared', 'history.compacted', 'items.retracted']) AS t (type)
             CROSS JOIN LATERAL (
                   SELECT o.version FROM events o
                    WHERE (o.context_id, o.stream_id, o.type, o.version) <= (p_context_id, p_stream_id, t.type, p_version)
                      AND (o.context_id, o.stream_id, o.type, o.version) >= (p_context_id, p_stream_id, t.type, 0::bigint)
                      AND o.type NOT IN ('item.appended', 'stream.forked')
                    ORDER BY o.context_id DESC, o.stream_id DESC, o.type DESC, o.version DESC LIMIT 1) e),
           s.fork_control, 0) END
    FROM streams s WHERE s.context_id = p_context_id AND s.stream_id = p_stream_id
$$;
