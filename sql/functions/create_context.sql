-- The context of a name, created with its tenant where they are new. Who loses a race finds the winner's rows.
CREATE OR REPLACE FUNCTION create_context(
  p_tenant  text,
  p_context text
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  tid integer;
  cid bigint;
BEGIN
  LOOP -- ON CONFLICT waits for the other transaction; what it committed shows in the next statement
    SELECT tenant_id INTO tid FROM tenants WHERE name = p_tenant;
    EXIT WHEN FOUND;
    INSERT INTO tenants (name) VALUES (p_tenant) ON CONFLICT (name) DO NOTHING;
  END LOOP;
  LOOP
    SELECT context_id INTO cid FROM contexts WHERE tenant_id = tid AND name = p_context;
    EXIT WHEN FOUND;
    INSERT INTO contexts (tenant_id, name) VALUES (tid, p_context) ON CONFLICT (tenant_id, name) DO NOTHING;
  END LOOP;
  RETURN cid;
END $$;
