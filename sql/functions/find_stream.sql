-- The stream of a name, created where an append may create it; outcome is null where it was found or made.
CREATE OR REPLACE FUNCTION find_stream(
  p_tenant_id   integer,
  p_tenant      text,        -- these as in advance()
  p_stream      text,
  p_context     text,
  p_tags        jsonb,
  p_expected    bigint,
  p_unique_keys text[]
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
    SELECT e.unique_key INTO r.detail
      FROM contexts c JOIN events e ON e.context_id = c.context_id AND e.unique_key = ANY (p_unique_keys)
     WHERE c.tenant_id = p_tenant_id AND c.name = coalesce(p_context, p_stream) LIMIT 1;
    IF FOUND THEN
      r.outcome := 'unique_key';
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
