-- A page of the feed: committed events after a cursor in order of position, none ever skipped, no writer kept waiting.
-- The last row has no version: its position is the next cursor, always that of a committed event, never the bound, with
-- that event's time and hash where it moved on; held says that a writer in flight ended the page, null that its limit did.
-- Three statements, three snapshots: see feed_bound().
CREATE OR REPLACE FUNCTION read_feed(
  p_tenant      text,      -- null: all of them, for a login bound to all
  p_after       bigint,    -- 0: from the beginning
  p_incarnation uuid,      -- of the cursor; null: none yet
  p_types       text[],    -- null: all
  p_limit       integer
) RETURNS TABLE (
  tenant text, context text, stream text, version bigint, "position" bigint, event_id uuid, type text, schema_version smallint,
  format smallint, data json, metadata json, subject text, agent text, call_id text, task_id text, run_id text,
  unique_key text, recorded_at timestamptz, hash bytea, incarnation uuid, held boolean
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER ROWS 100
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  tid   integer;
  life  uuid;
  f     record;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'the feed can''t be read at isolation level %: its statements need a snapshot each',
      current_setting('transaction_isolation')
      USING ERRCODE = 'CV003', HINT = 'read it at READ COMMITTED, outside of that transaction';
  END IF;
  IF p_tenant IS NOT NULL THEN
    tid := coalesce(tenant_of(p_tenant), -1);
  ELSIF NOT EXISTS (SELECT FROM tenant_logins l WHERE l.login = session_user AND l.tenant_id = 0) THEN
    PERFORM tenant_of(NULL);
  END IF;
  IF pg_is_in_recovery() THEN
    SELECT w.position AS drawn, w.position AS bound INTO f FROM watermark w;
  ELSE
    SELECT * INTO f FROM feed_bound(p_after);
  END IF;
  SELECT s.incarnation INTO life FROM store s; -- after the bound, which waits for a repair of the sequence
  IF p_incarnation <> life THEN
    RAISE EXCEPTION 'the cursor is of another life of this log: it was restored or failed over since'
      USING ERRCODE = 'CV004', HINT = 'read again from the beginning, or from an event that is known to be there';
  END IF;
  IF NOT pg_is_in_recovery() THEN
    IF p_after > f.drawn THEN
      RAISE EXCEPTION 'the cursor is at position %, ahead of the log, which is at %', p_after, f.drawn
        USING ERRCODE = 'CV004', HINT = 'the log was set back, as by a restore: read again from an event that is known to be there';
    END IF;
  END IF;
  RETURN QUERY
    WITH raw AS MATERIALIZED ( -- one half or the other; compared and ordered so that only its own index serves it
      (SELECT * FROM events e
        WHERE tid IS NULL AND e.position > p_after AND e.position <= f.bound AND (p_types IS NULL OR e.type = ANY (p_types))
        ORDER BY e.position LIMIT p_limit)
      UNION ALL
      (SELECT * FROM events e
        WHERE (e.tenant_id, e.position) > (tid, p_after) AND (e.tenant_id, e.position) <= (tid, f.bound)
          AND (p_types IS NULL OR e.type = ANY (p_types))
        ORDER BY e.tenant_id, e.position LIMIT p_limit)
    ), page AS MATERIALIZED (
      SELECT * FROM (SELECT r.*, sum(pg_column_size(r.data)) OVER (ORDER BY r.position) - pg_column_size(r.data) AS before
                       FROM raw r) s WHERE s.before = 0 OR s.before < 1048576
    ), cut AS (
      SELECT (SELECT count(*) FROM raw) = p_limit OR (SELECT count(*) FROM raw) > (SELECT count(*) FROM page) AS short
    ), next AS MATERIALIZED ( -- in the same snapshot: where the page was not cut short, past all that it passed over
      SELECT CASE WHEN cut.short THEN (SELECT max(p.position) FROM page p)
                  ELSE greatest(p_after,
                    (SELECT max(e.position) FROM events e WHERE tid IS NULL AND e.position > p_after AND e.position <= f.bound),
                    (SELECT e.position FROM events e
                      WHERE (e.tenant_id, e.position) > (tid, p_after) AND (e.tenant_id, e.position) <= (tid, f.bound)
                      ORDER BY e.tenant_id DESC, e.position DESC LIMIT 1))
             END AS position
        FROM cut
    )
    SELECT t.name, c.name, d.name, p.version, p.position, p.event_id, p.type, p.schema_version, p.format, p.data, p.metadata,
           p.subject, p.agent, p.call_id, p.task_id, p.run_id, p.unique_key, p.recorded_at, p.hash, life, false
      FROM page p
      LEFT JOIN streams d ON d.context_id = p.context_id AND d.stream_id = p.stream_id -- an event without its name is still one
      LEFT JOIN contexts c ON c.context_id = p.context_id
      LEFT JOIN tenants t ON t.tenant_id = p.tenant_id
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, n.position, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           e.recorded_at, e.hash, life, CASE WHEN NOT cut.short THEN f.bound < f.drawn END
      FROM cut CROSS JOIN next n LEFT JOIN events e ON n.position > p_after AND e.position = n.position
    ORDER BY 5, 4 NULLS LAST;
END $$;
