-- The version of a stream's last event; 0 where the stream does not exist.
CREATE OR REPLACE FUNCTION stream_head(
  p_tenant text,
  p_stream text
) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
  tid integer := tenant_of(p_tenant); -- asked first: a plan that finds no row would not ask
BEGIN
  RETURN coalesce((SELECT s.head FROM directory d JOIN streams s USING (context_id, stream_id)
                    WHERE d.tenant_id = tid AND d.name = p_stream), 0);
END $$;
