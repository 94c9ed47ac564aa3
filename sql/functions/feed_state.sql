-- How far the feed is, how far a reader is behind it, and who holds it back: one row. The lag is what is committed above
-- the cursor, given by the feed already or not, counted up to p_most: positions have gaps and are of all tenants.
CREATE OR REPLACE FUNCTION feed_state(
  p_tenant      text,      -- null: all of them, for a login bound to all
  p_after       bigint,    -- the reader's cursor; 0: from the beginning
  p_incarnation uuid,      -- of the cursor; null: none yet
  p_most        integer
) RETURNS TABLE (
  incarnation uuid, "position" bigint, lag_events bigint, lag_seconds double precision, open_writers bigint,
  blocked boolean, pid integer, age_s double precision, who text, state text, query text
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER ROWS 1
SET search_path = pg_catalog, convstore, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  tid   integer;
  life  uuid := (SELECT s.incarnation FROM store s);
  alone boolean := pg_is_in_recovery(); -- a stand-by sees no stamps
  f     record;
BEGIN
  IF p_tenant IS NOT NULL THEN
    tid := coalesce(tenant_of(p_tenant), -1);
  ELSIF NOT EXISTS (SELECT FROM tenant_logins l WHERE l.login = session_user AND l.tenant_id = 0) THEN
    PERFORM tenant_of(NULL);
  END IF;
  IF p_incarnation <> life THEN
    RAISE EXCEPTION 'the cursor is of another life of this log: it was restored or failed over since'
      USING ERRCODE = 'CV004', HINT = 'read again from the beginning, or from an event that is known to be there';
  END IF;
  IF alone THEN
    SELECT w.position AS drawn, w.position AS bound INTO f FROM watermark w;
  ELSE
    SELECT * INTO f FROM feed_bound(-1);
    IF p_after > f.drawn THEN
      RAISE EXCEPTION 'the cursor is at position %, ahead of the log, which is at %', p_after, f.drawn
        USING ERRCODE = 'CV004', HINT = 'the log was set back, as by a restore: read again from an event that is known to be there';
    END IF;
  END IF;
  RETURN QUERY
    WITH unread AS MATERIALIZED ( -- one half or the other, each served by its own index alone: see read_feed()
      (SELECT e.position FROM events e WHERE tid IS NULL AND e.position > p_after ORDER BY e.position LIMIT p_most)
      UNION ALL
      (SELECT e.position FROM events e
        WHERE (e.tenant_id, e.position) > (tid, p_after) AND (e.tenant_id, e.position) < (tid + 1, 0)
        ORDER BY e.tenant_id, e.position LIMIT p_most)
    )
    SELECT life,
           coalesce((SELECT max(e.position) FROM events e WHERE tid IS NULL AND e.position <= f.bound),
                    (SELECT e.position FROM events e
                      WHERE (e.tenant_id, e.position) > (tid, 0) AND (e.tenant_id, e.position) <= (tid, f.bound)
                      ORDER BY e.tenant_id DESC, e.position DESC LIMIT 1), 0),
           (SELECT count(*) FROM unread),
           coalesce((SELECT greatest(extract(epoch FROM clock_timestamp() - e.recorded_at), 0)
                       FROM events e WHERE e.position = (SELECT min(u.position) FROM unread u)), 0)::double precision,
           CASE WHEN NOT alone THEN
             (SELECT count(DISTINCT l.virtualtransaction) FROM pg_locks l
               WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND l.classid::bigint >> 16 = 17750
                 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())) END,
           w.stamp IS NOT NULL, w.pid, w.age_s, w.who, w.state, w.query
      FROM (SELECT) one LEFT JOIN (SELECT * FROM feed_blockers() LIMIT 1) w ON NOT alone;
END $$;
