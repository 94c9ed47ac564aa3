-- Which stream owns which part of versions p_first to p_last of a branch: walks up to the parents, and no further than
-- p_first. A branch's own part begins after its fork point; that of a parent ends at its child's.
CREATE OR REPLACE FUNCTION lineage(
  p_context_id bigint,
  p_stream_id  bigint,
  p_first      bigint,   -- at least 1
  p_last       bigint    -- null: to the head
) RETURNS TABLE (stream_id bigint, name text, after bigint, upto bigint) -- its versions after + 1 to upto, the last part first
LANGUAGE sql STABLE ROWS 2 AS $$
  WITH RECURSIVE line AS (
    SELECT s.stream_id, s.name, coalesce(s.fork_at, 0) AS after, least(s.head, p_last) AS upto, s.parent_id
      FROM streams s WHERE s.context_id = p_context_id AND s.stream_id = p_stream_id
    UNION ALL
    SELECT p.stream_id, p.name, coalesce(p.fork_at, 0), least(l.after, p_last), p.parent_id
      FROM line l
     CROSS JOIN LATERAL (SELECT * FROM streams s WHERE s.context_id = p_context_id AND s.stream_id = l.parent_id OFFSET 0) p
     WHERE l.after >= p_first AND coalesce(p.fork_at, 0) < l.after -- always so; else it was tampered with, maybe to a circle
  )
  SELECT l.stream_id, l.name, l.after, l.upto FROM line l WHERE l.upto > l.after AND l.upto >= p_first
$$;
