-- Appends what was decided from a look at the stream: only where no event of some types came since. What is appended
-- beside it does not matter, so a busy conversation can't starve it. The rest is as in append_events().
CREATE OR REPLACE FUNCTION append_decided(
  p_seen            bigint,    -- the head as of that look
  p_decisive        text[],    -- the types that the decision depends on; no items
  p_tenant          text,
  p_stream          text,
  p_may_repeat      boolean,
  p_event_ids       uuid[],
  p_schema_versions smallint[],
  p_formats         smallint[],
  p_types           text[],
  p_subjects        text[],
  p_agents          text[],
  p_call_ids        text[],
  p_task_ids        text[],
  p_run_ids         text[],
  p_unique_keys     text[],
  p_metadatas       json[],
  p_datas           json[]
) RETURNS append_result        -- its outcome also no_stream, or moved; actual is the event that came since then
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  tid   integer := tenant_of(p_tenant);
  place record;
  since bigint;
  r     append_result;
BEGIN
  IF num_nonnulls(VARIADIC p_task_ids) > 0 THEN -- before the stream's row, as everybody does
    r := name_tasks(false, p_tenant, p_stream, NULL, NULL, NULL, NULL, -1, p_may_repeat, p_event_ids, p_types, p_formats,
      p_datas, p_task_ids);
    IF r.outcome IS NOT NULL THEN
      RETURN r;
    END IF;
    r := NULL;
  END IF;
  SELECT d.context_id, d.stream_id, 0::bigint AS head INTO place
    FROM directory d WHERE d.tenant_id = tid AND d.name = p_stream;
  IF NOT FOUND THEN
    r.outcome := 'no_stream';
    RETURN r;
  END IF;
  IF cardinality(array_remove(p_unique_keys, NULL)) > 0 THEN -- the context before the stream, as in advance()
    PERFORM FROM contexts WHERE context_id = place.context_id FOR NO KEY UPDATE;
  END IF;
  SELECT s.head INTO place.head FROM streams s
   WHERE s.context_id = place.context_id AND s.stream_id = place.stream_id FOR UPDATE;
  SELECT min(v.version) INTO since -- in a new statement, which sees what was committed before the lock
    FROM typed_versions(place.context_id, ARRAY[place.stream_id], ARRAY[p_seen], ARRAY[place.head], p_decisive, 1) v;
  IF since IS NOT NULL THEN
    IF p_may_repeat THEN
      r := find_repeat(place.context_id, place.stream_id, p_event_ids, p_types, p_formats, p_datas, place.head);
    END IF;
    IF r.outcome IS NULL THEN
      r.outcome := 'moved';
      r.actual := since;
    END IF;
    RETURN r;
  END IF;
  RETURN append_events(p_tenant, p_stream, NULL, NULL, NULL, NULL, NULL, NULL, p_may_repeat, p_event_ids,
    p_schema_versions, p_formats, p_types, p_subjects, p_agents, p_call_ids, p_task_ids, p_run_ids, p_unique_keys,
    p_metadatas, p_datas);
END $$;
