-- What a client has to know before it trusts the store: which migrations and functions are applied, and which life of
-- the log this is.
CREATE OR REPLACE FUNCTION store_state()
RETURNS TABLE (incarnation uuid, migrations text[], functions text[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, convstore, pg_temp AS $$
  SELECT s.incarnation,
         (SELECT array_agg(m.name || ' ' || m.checksum ORDER BY m.name) FROM schema_migrations m),
         (SELECT array_agg(f.name || ' ' || f.checksum ORDER BY f.name) FROM schema_functions f)
    FROM store s
$$;
