-- The items of a branch from p_first to p_last, the newest first: walks up no further than it needs for the limit.
CREATE OR REPLACE FUNCTION tail_of(
  p_context_id bigint,
  p_stream_id  bigint,
  p_first      bigint,
  p_last       bigint,
  p_limit      bigint      -- at most; null: all
) RETURNS TABLE (version bigint, format smallint, data json)
LANGUAGE plpgsql STABLE ROWS 100 AS $$
#variable_conflict use_column
DECLARE
  low    bigint := p_last + 1;
  high   bigint;
  step   bigint := 2 * least(p_limit, 10000) + 20;   -- not every event is an item
  rest   bigint := p_limit;
  n      bigint;
  ids    bigint[];
  afters bigint[];
  uptos  bigint[];
BEGIN
  WHILE low > p_first AND rest IS DISTINCT FROM 0 LOOP
    high := low - 1;
    low := greatest(p_first, coalesce(low - step, p_first));
    step := step * 8;
    SELECT array_agg(l.stream_id), array_agg(l.after), array_agg(l.upto) INTO ids, afters, uptos
      FROM (SELECT * FROM lineage(p_context_id, p_stream_id, low, high) l ORDER BY l.after DESC) l;
    RETURN QUERY
      SELECT r.version, r.format, r.data
        FROM ranges_of(p_context_id, ids, afters, uptos, ARRAY[low], ARRAY[high], ARRAY['item.appended'], rest) r;
    GET DIAGNOSTICS n = ROW_COUNT;
    rest := rest - n;
  END LOOP;
END $$;
