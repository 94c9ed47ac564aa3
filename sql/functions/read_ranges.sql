-- The items or summaries in some version ranges of a stream, the newest first: the ranges as they are given, each from its
-- end. A transcript is a list of such ranges.
CREATE OR REPLACE FUNCTION read_ranges(
  p_tenant text,
  p_stream text,
  p_firsts bigint[],
  p_lasts  bigint[],
  p_types  text[],     -- of each range: item.appended or summary.appended
  p_limit  bigint      -- at most; null: all
) RETURNS TABLE (version bigint, summary boolean, format smallint, data json)
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  tid    integer := tenant_of(p_tenant);
  place  record;
  first  bigint := (SELECT min(f) FROM unnest(p_firsts) f);
  last   bigint := (SELECT max(l) FROM unnest(p_lasts) l);
  ids    bigint[];
  afters bigint[];
  uptos  bigint[];
BEGIN
  SELECT d.context_id, d.stream_id INTO place FROM directory d WHERE d.tenant_id = tid AND d.name = p_stream;
  SELECT array_agg(l.stream_id), array_agg(l.after), array_agg(l.upto) INTO ids, afters, uptos
    FROM (SELECT * FROM lineage(place.context_id, place.stream_id, first, last) l ORDER BY l.after DESC) l;
  RETURN QUERY SELECT * FROM ranges_of(place.context_id, ids, afters, uptos, p_firsts, p_lasts, p_types, p_limit);
END $$;
