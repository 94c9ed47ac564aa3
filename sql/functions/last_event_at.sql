-- The last event at or below a position, for the cursor of a reader that knows how far it came; never above a writer in
-- flight. Nulls where there is none.
CREATE OR REPLACE FUNCTION last_event_at(
  p_tenant   text,      -- null: of all tenants, for a login bound to all
  p_position bigint
) RETURNS TABLE ("position" bigint, recorded_at timestamptz, hash bytea, incarnation uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER ROWS 1
SET search_path = pg_catalog, convstore, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  tid integer;
  top bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'a cursor can''t be made at isolation level %', current_setting('transaction_isolation')
      USING ERRCODE = 'CV003', HINT = 'do it at READ COMMITTED, outside of that transaction';
  END IF;
  IF p_tenant IS NOT NULL THEN
    tid := coalesce(tenant_of(p_tenant), -1);
  ELSIF NOT EXISTS (SELECT FROM tenant_logins l WHERE l.login = session_user AND l.tenant_id = 0) THEN
    PERFORM tenant_of(NULL);
  END IF;
  IF pg_is_in_recovery() THEN
    top := (SELECT least(p_position, w.position) FROM watermark w);
  ELSE
    top := (SELECT least(p_position, b.bound) FROM feed_bound(-1) b);
  END IF;
  RETURN QUERY
    SELECT e.position, e.recorded_at, e.hash, s.incarnation
      FROM store s
      LEFT JOIN LATERAL (
        (SELECT * FROM events e WHERE tid IS NULL AND e.position <= top ORDER BY e.position DESC LIMIT 1)
        UNION ALL
        (SELECT * FROM events e WHERE (e.tenant_id, e.position) >= (tid, 0) AND (e.tenant_id, e.position) <= (tid, top)
          ORDER BY e.tenant_id DESC, e.position DESC LIMIT 1)) e ON true;
END $$;
