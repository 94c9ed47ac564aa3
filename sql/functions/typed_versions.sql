-- Where a stream's events of some types are, in order, at most p_limit of them. By the index of what is no item: so neither
-- a long conversation nor missing statistics matter. The arrays say who owns which versions, as in ranges_of().
CREATE OR REPLACE FUNCTION typed_versions(
  p_context_id bigint,
  p_ids        bigint[],   -- streams, which own
  p_afters     bigint[],   -- the versions after these
  p_uptos      bigint[],   -- up to these
  p_types      text[],     -- none of them item.appended or stream.forked
  p_limit      integer
) RETURNS TABLE (part integer, version bigint)
LANGUAGE sql STABLE ROWS 100 AS $$
  SELECT g.part, v.version
    FROM generate_subscripts(p_ids, 1) AS g (part)
   CROSS JOIN unnest(p_types) AS t (type)
   CROSS JOIN LATERAL (
         SELECT o.version FROM events o
          WHERE (o.context_id, o.stream_id, o.type, o.version) > (p_context_id, p_ids[g.part], t.type, p_afters[g.part])
            AND (o.context_id, o.stream_id, o.type, o.version) <= (p_context_id, p_ids[g.part], t.type, p_uptos[g.part])
            AND o.type NOT IN ('item.appended', 'stream.forked')
          ORDER BY o.context_id, o.stream_id, o.type, o.version LIMIT p_limit) v
   ORDER BY v.version LIMIT p_limit
$$;
