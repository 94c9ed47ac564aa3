-- Creates a stream, and its tenant and context where they are new. Who loses a race finds the winner's rows.
CREATE OR REPLACE FUNCTION create_stream(
  p_tenant  text,
  p_context text,
  p_stream  text,
  p_tags    jsonb
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  tid integer;
  cid bigint := create_context(p_tenant, p_context);
  key bytea;
  sid bigint;
BEGIN
  SELECT tenant_id, secret INTO tid, key FROM contexts WHERE context_id = cid;
  INSERT INTO directory (tenant_id, name, context_id, tags) VALUES (tid, p_stream, cid, coalesce(p_tags, '{}'))
    ON CONFLICT (tenant_id, name) DO NOTHING RETURNING stream_id INTO sid;
  IF sid IS NOT NULL THEN
    INSERT INTO streams (context_id, stream_id, tenant_id, origin, secret, name)
      VALUES (cid, sid, tid, names_hash(p_tenant, p_context, p_stream), key, p_stream);
  END IF;
END $$;
