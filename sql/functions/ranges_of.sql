-- The items or summaries in some version ranges, the newest first: the ranges as they are given, each from its end. The
-- arrays say who owns which versions, the last part first.
CREATE OR REPLACE FUNCTION ranges_of(
  p_context_id bigint,
  p_ids        bigint[],   -- streams, which own
  p_afters     bigint[],   -- the versions after these
  p_uptos      bigint[],   -- up to these
  p_firsts     bigint[],
  p_lasts      bigint[],
  p_types      text[],     -- of each range
  p_limit      bigint      -- null: all
) RETURNS TABLE (version bigint, summary boolean, format smallint, data json)
LANGUAGE sql STABLE ROWS 100 AS $$
  SELECT e.version, e.type <> 'item.appended', e.format, e.data
    FROM generate_subscripts(p_firsts, 1) AS r (i)
   CROSS JOIN LATERAL ( -- it needs r, and e needs both: so no planner turns the loops round, and the order is that of the ranges
         SELECT g.i FROM generate_subscripts(p_ids, 1) AS g (i)
          WHERE p_uptos[g.i] >= p_firsts[r.i] AND p_afters[g.i] < p_lasts[r.i] OFFSET 0) s
   CROSS JOIN LATERAL (
         SELECT * FROM events e
          WHERE e.context_id = p_context_id AND e.stream_id = p_ids[s.i]
            AND e.version > greatest(p_afters[s.i], p_firsts[r.i] - 1) AND e.version <= least(p_uptos[s.i], p_lasts[r.i])
            AND e.type = p_types[r.i]
          ORDER BY e.version DESC LIMIT p_limit) e
   LIMIT p_limit
$$;
