-- The stream of a name, created where an append may create it; outcome is null where it was found or made.
CREATE OR REPLACE FUNCTION find_stream(
  p_tenant_id integer,
  p_tenant    text,
  p_stream    text,
  p_context   text,
  p_tags      jsonb,
  p_expected  bigint
) RETURNS append_result
LANGUAGE plpgsql AS $$
DECLARE
  r append_result;
BEGIN
  LOOP
    SELECT d.context_id, d.stream_id, c.name INTO r.context_id, r.stream_id, r.context
      FROM directory d JOIN contexts c USING (context_id)
     WHERE d.tenant_id = coalesce(p_tenant_id, tenant_of(p_tenant)) AND d.name = p_stream;
    EXIT WHEN FOUND;
    IF p_expected <> 0 THEN
      r.outcome := 'version_conflict';
      r.actual := 0;
      RETURN r;
    END IF;
    PERFORM create_stream(p_tenant, coalesce(p_context, p_stream), p_stream, p_tags);
  END LOOP;
  IF r.context <> p_context THEN -- p_context null: whichever
    r.outcome := 'context_mismatch';
    r.detail := r.context;
  END IF;
  RETURN r;
END $$;
