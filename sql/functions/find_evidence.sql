-- Which of some references name an event of the stream's context. Each is one element of the arrays: an event's id; a
-- version, of the stream itself where no other is named; or an artifact, by all that was published under its uri.
CREATE OR REPLACE FUNCTION find_evidence(
  p_tenant    text,
  p_stream    text,
  p_context   text,      -- of a stream that is not there yet; null: its own name
  p_event_ids uuid[],
  p_streams   text[],
  p_versions  bigint[],
  p_uris      text[]
) RETURNS TABLE (ord integer, stream text, version bigint, event_id uuid, format smallint, data json) -- data: of artifacts
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 10
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  tid integer := tenant_of(p_tenant);
  cid bigint;
BEGIN
  SELECT d.context_id INTO cid FROM directory d WHERE d.tenant_id = tid AND d.name = p_stream;
  IF NOT FOUND THEN
    SELECT c.context_id INTO cid FROM contexts c WHERE c.tenant_id = tid AND c.name = coalesce(p_context, p_stream);
  END IF;
  RETURN QUERY
    SELECT g.i, s.name, e.version, e.event_id, NULL::smallint, NULL::json -- ids are unique in a stream: ask each of the context
      FROM generate_subscripts(p_event_ids, 1) AS g (i)
      JOIN streams s ON s.context_id = cid AND p_event_ids[g.i] IS NOT NULL
     CROSS JOIN LATERAL (
           SELECT * FROM events v -- by order: see find_repeat()
            WHERE (v.context_id, v.stream_id, v.event_id) >= (cid, s.stream_id, p_event_ids[g.i])
            ORDER BY v.context_id, v.stream_id, v.event_id LIMIT 1) e
     WHERE e.context_id = cid AND e.stream_id = s.stream_id AND e.event_id = p_event_ids[g.i]
    UNION ALL
    SELECT g.i, l.name, e.version, e.event_id, NULL::smallint, NULL::json
      FROM generate_subscripts(p_versions, 1) AS g (i)
      JOIN directory d ON d.tenant_id = tid AND d.name = coalesce(p_streams[g.i], p_stream) AND d.context_id = cid
     CROSS JOIN LATERAL lineage(cid, d.stream_id, p_versions[g.i], p_versions[g.i]) l
     CROSS JOIN LATERAL (
           SELECT * FROM events v WHERE (v.context_id, v.stream_id, v.version) >= (cid, l.stream_id, p_versions[g.i])
            ORDER BY v.context_id, v.stream_id, v.version LIMIT 1) e
     WHERE p_uris[g.i] IS NULL AND p_versions[g.i] IS NOT NULL
    UNION ALL
    SELECT g.i, NULL, NULL, NULL, a.format, a.data
      FROM generate_subscripts(p_uris, 1) AS g (i)
     CROSS JOIN LATERAL (
           SELECT b.format, b.data FROM events b
            WHERE b.context_id = cid AND b.subject = p_uris[g.i] AND b.type = 'artifact.published' OFFSET 0) a;
END $$;
