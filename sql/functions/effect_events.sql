-- The events about one effect in a context, in order of position, with the server's time: no other clock judges a lease.
CREATE OR REPLACE FUNCTION effect_events(
  p_tenant  text,
  p_stream  text,      -- its context; where there is no such stream,
  p_context text,      -- this one; null: the one of the stream's name
  p_subject text       -- the effect's key, as events hold it
) RETURNS TABLE (
  context text, stream text, version bigint, "position" bigint, event_id uuid, type text, schema_version smallint,
  format smallint, data json, metadata json, subject text, agent text, call_id text, task_id text, run_id text,
  unique_key text, recorded_at timestamptz, hash bytea,
  now timestamptz
)
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 10
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  tid   integer := tenant_of(p_tenant);
  place record;
BEGIN
  SELECT c.context_id, c.name INTO place FROM contexts c
   WHERE c.context_id = coalesce((SELECT d.context_id FROM directory d WHERE d.tenant_id = tid AND d.name = p_stream),
     (SELECT k.context_id FROM contexts k WHERE k.tenant_id = tid AND k.name = coalesce(p_context, p_stream)));
  RETURN QUERY
    SELECT place.name, s.name, e.version, e.position, e.event_id, e.type, e.schema_version, e.format, e.data, e.metadata,
           e.subject, e.agent, e.call_id, e.task_id, e.run_id, e.unique_key, e.recorded_at, e.hash, clock_timestamp()
      FROM events e
      JOIN streams s ON s.context_id = e.context_id AND s.stream_id = e.stream_id
     WHERE e.context_id = place.context_id AND e.subject = p_subject AND e.type >= 'effect.' AND e.type < 'effect/'
     ORDER BY e.position;
END $$;
