-- Appends what changes a transcript: only where no other such event came since the one that it was decided on. What is
-- appended beside it does not matter. The rest is as in append_events().
CREATE OR REPLACE FUNCTION append_control(
  p_control         bigint,    -- the control event that this was decided on; 0: none
  p_ranges          json,      -- the ranges as of that event, to be kept as a checkpoint; null: not now
  p_tenant          text,
  p_stream          text,
  p_expected        bigint,
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
) RETURNS append_result        -- its outcome also control_conflict; actual is the last control event then
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
  tid   integer := tenant_of(p_tenant);
  place record;
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
  SELECT s.context_id, s.stream_id, s.head, s.control INTO place
    FROM directory d JOIN streams s USING (context_id, stream_id)
   WHERE d.tenant_id = tid AND d.name = p_stream FOR UPDATE OF s;
  IF NOT FOUND THEN
    r.outcome := 'no_stream';
    RETURN r;
  END IF;
  IF place.control <> p_control THEN
    IF p_may_repeat THEN
      r := find_repeat(place.context_id, place.stream_id, p_event_ids, p_types, p_formats, p_datas, place.head);
    END IF;
    IF r.outcome IS NULL THEN
      r.outcome := 'control_conflict';
      r.actual := place.control;
    END IF;
    RETURN r;
  END IF;
  IF p_ranges IS NOT NULL AND p_control > 0 THEN
    INSERT INTO checkpoints (context_id, stream_id, version, tenant_id, ranges)
      VALUES (place.context_id, place.stream_id, p_control, tid, p_ranges) ON CONFLICT DO NOTHING;
  END IF;
  RETURN append_events(p_tenant, p_stream, NULL, NULL, NULL, NULL, NULL, p_expected, p_may_repeat, p_event_ids,
    p_schema_versions, p_formats, p_types, p_subjects, p_agents, p_call_ids, p_task_ids, p_run_ids, p_unique_keys,
    p_metadatas, p_datas);
END $$;
