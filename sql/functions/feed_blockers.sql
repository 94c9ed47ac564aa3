-- Who holds the feed back: transactions with a stamp, the lowest first; prepared ones by their name. Age and state of
-- others need pg_read_all_stats, which roles.sql gives the owner where it may. Who it is and what it runs is told to
-- logins that are bound to all tenants: a query can hold another tenant's values.
CREATE OR REPLACE FUNCTION feed_blockers()
RETURNS TABLE (stamp bigint, pid integer, age_s double precision, who text, state text, query text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, convstore, pg_temp AS $$
  SELECT (l.classid::bigint & 65535) << 32 | l.objid::bigint, l.pid,
         extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared))::double precision,
         CASE WHEN m.all_tenants THEN coalesce(
           a.usename || ' (' || coalesce(nullif(a.application_name, ''), 'no application name') || ')',
           'prepared transaction ' || p.gid, 'a transaction that ended meanwhile') END,
         coalesce(a.state, 'prepared'), CASE WHEN m.all_tenants THEN a.query END
    FROM pg_locks l
   CROSS JOIN (SELECT EXISTS (SELECT FROM tenant_logins WHERE login = session_user AND tenant_id = 0) AS all_tenants) m
    LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    LEFT JOIN pg_locks t ON l.pid IS NULL AND t.pid IS NULL AND t.virtualtransaction = l.virtualtransaction
                        AND t.locktype = 'transactionid'
    LEFT JOIN pg_prepared_xacts p ON p.transaction = t.transactionid
   WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND l.classid::bigint >> 16 = 17750
     AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   ORDER BY 1, a.xact_start
$$;
