-- How far the builds of a projection are, for who waits for one; no row where nobody has run it.
CREATE OR REPLACE FUNCTION projection_state(
  p_name text
) RETURNS TABLE (state text, version integer, "position" bigint, stopped boolean, error text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, convstore, pg_temp AS $$
  SELECT p.state, p.version, p.position, p.stopped, p.error FROM projections p WHERE p.name = p_name AND p.state <> 'retired'
$$;
