-- Who may do what; re-applied after each migration. Roles belong to the whole cluster: another database may have made
-- them, or may be making them now, and this login may not be allowed to: then it prints the statements to run.
-- The matrix is in README.md; a test compares it with the catalogue.

DO $$
DECLARE
  role text;
BEGIN
  FOREACH role IN ARRAY ARRAY[
    'convstore_owner', 'convstore_writer', 'convstore_reader', 'convstore_projector', 'convstore_auditor'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
      BEGIN
        EXECUTE format('CREATE ROLE %I NOLOGIN', role);
      EXCEPTION
        WHEN duplicate_object OR unique_violation THEN NULL;
        WHEN insufficient_privilege THEN
          RAISE NOTICE 'this login may not create roles; an administrator has to run: CREATE ROLE % NOLOGIN; then migrate again',
            role;
      END;
    END IF;
  END LOOP;
END $$;

-- Ownership goes to a role that nobody logs in as, where this login may hand it over.
DO $$
DECLARE
  statement text;
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'convstore_owner') THEN
    RETURN;
  END IF;
  IF NOT pg_has_role('convstore_owner', 'USAGE') THEN
    EXECUTE 'GRANT convstore_owner TO CURRENT_USER';
  END IF;
  IF NOT pg_has_role('convstore_owner', 'USAGE') THEN
    RETURN;
  END IF;
  FOR statement IN
    SELECT format('ALTER SCHEMA %I OWNER TO convstore_owner', nspname)
      FROM pg_namespace WHERE nspname IN ('convstore', 'convstore_builds', 'convstore_views')
       AND nspowner <> 'convstore_owner'::regrole
    UNION ALL
    SELECT format('ALTER TABLE %s OWNER TO convstore_owner', oid::regclass)
      FROM pg_class WHERE relnamespace = 'convstore'::regnamespace AND relkind IN ('r', 'v', 'm', 'p')
       AND relowner <> 'convstore_owner'::regrole AND relname = ANY (ARRAY['tenants', 'tenant_logins', 'contexts', 'directory',
         'streams', 'events', 'tasks', 'checkpoints', 'store', 'watermark', 'schema_migrations',
         'schema_functions', 'projections', 'parked']) -- whatever else is not ours
    UNION ALL
    SELECT format('ALTER SEQUENCE %s OWNER TO convstore_owner', c.oid::regclass)
      FROM pg_class c WHERE c.relnamespace = 'convstore'::regnamespace AND c.relkind = 'S' AND c.relname = 'position'
       AND c.relowner <> 'convstore_owner'::regrole
    UNION ALL
    SELECT format('ALTER TYPE %s OWNER TO convstore_owner', t.oid::regtype)
      FROM pg_type t JOIN pg_class c ON c.oid = t.typrelid AND c.relkind = 'c'
     WHERE t.typnamespace = 'convstore'::regnamespace AND t.typowner <> 'convstore_owner'::regrole
    UNION ALL
    SELECT format('ALTER FUNCTION %s OWNER TO convstore_owner', oid::regprocedure)
      FROM pg_proc WHERE pronamespace = 'convstore'::regnamespace AND proowner <> 'convstore_owner'::regrole
  LOOP
    EXECUTE statement;
  END LOOP;
EXCEPTION WHEN insufficient_privilege THEN
  RAISE NOTICE 'the objects stay with %, who may not hand them to convstore_owner: %', current_user, SQLERRM;
END $$;

-- So that feed_blockers() can tell age and query of other logins' transactions.
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'convstore_owner')
     AND NOT pg_has_role('convstore_owner', 'pg_read_all_stats', 'USAGE') THEN
    GRANT pg_read_all_stats TO convstore_owner;
  END IF;
EXCEPTION WHEN insufficient_privilege THEN
  RAISE NOTICE 'an administrator may run: GRANT pg_read_all_stats TO convstore_owner; else the feed tells only a blocker''s pid';
END $$;

DO $$
DECLARE
  writer  text[] := ARRAY['append_event', 'append_events', 'append_set', 'append_control', 'append_tasks',
    'append_decided', 'fork_stream'];
  reading text[] := ARRAY['stream_head', 'read_events', 'find_event', 'read_transcript', 'read_ranges', 'list_streams',
    'list_family', 'stream_lineage', 'read_feed', 'feed_blockers', 'feed_state', 'list_tasks', 'find_claims', 'read_types',
    'effect_events', 'list_effects', 'find_evidence', 'read_decisive',
    'store_state', 'check_cursor', 'last_event_at', 'sequence_faults',
    'projection_state', 'build_shown'];
  auditor text[] := ARRAY['audit_streams', 'audit_events', 'audit_orphans', 'audit_tasks', 'audit_checkpoints',
    'names_hash', 'content_hash', 'event_hash', 'append_chain'];
  shown   text[] := ARRAY['tenants', 'directory', 'events', 'tasks', 'checkpoints', 'store', 'watermark', 'schema_migrations',
    'schema_functions'];
  role    text;
  f       record;
  relation text;
BEGIN
  FOR f IN SELECT oid::regprocedure AS signature FROM pg_proc WHERE pronamespace = 'convstore'::regnamespace LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f.signature);
  END LOOP;
  FOREACH role IN ARRAY ARRAY['convstore_writer', 'convstore_reader', 'convstore_projector', 'convstore_auditor'] LOOP
    CONTINUE WHEN NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role);
    FOREACH relation IN ARRAY shown || ARRAY['streams', 'contexts', 'tenant_logins', 'position', 'projections', 'parked'] LOOP
      EXECUTE format('REVOKE ALL ON convstore.%I FROM %I', relation, role);
    END LOOP;
    EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA convstore FROM %I', role);
    EXECUTE format('GRANT USAGE ON SCHEMA convstore TO %I', role);
    FOR f IN SELECT oid::regprocedure AS signature FROM pg_proc
              WHERE pronamespace = 'convstore'::regnamespace
                AND (proname = ANY (reading) OR proname = 'visible_tenant'
                  OR role = 'convstore_writer' AND proname = ANY (writer)
                  OR role = 'convstore_projector' AND proname = 'record_watermark'
                  OR role = 'convstore_auditor' AND proname = ANY (auditor)) LOOP
      EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', f.signature, role);
    END LOOP;
    IF role <> 'convstore_writer' THEN
      FOREACH relation IN ARRAY shown LOOP
        EXECUTE format('GRANT SELECT ON convstore.%I TO %I', relation, role);
      END LOOP;
      -- All but the secrets that salt the hashes.
      EXECUTE format('GRANT SELECT (context_id, tenant_id, name, created_at) ON convstore.contexts TO %I', role);
      EXECUTE format('GRANT SELECT (context_id, stream_id, head, control, recorded_at, closed, tenant_id, parent_id, fork_at,'
        ' fork_control, origin, name) ON convstore.streams TO %I', role);
    END IF;
    EXECUTE format('REVOKE ALL ON SCHEMA convstore_builds, convstore_views FROM %I', role);
    IF role IN ('convstore_reader', 'convstore_auditor') THEN
      EXECUTE format('GRANT SELECT ON convstore.projections TO %I', role);
      EXECUTE format('GRANT USAGE ON SCHEMA convstore_builds, convstore_views TO %I', role);
    END IF;
    IF role = 'convstore_auditor' THEN
      EXECUTE 'GRANT SELECT ON convstore.contexts, convstore.streams TO convstore_auditor';
    END IF;
    IF role = 'convstore_projector' THEN
      EXECUTE 'GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON convstore.projections, convstore.parked TO convstore_projector';
      EXECUTE 'GRANT USAGE, CREATE ON SCHEMA convstore_builds, convstore_views TO convstore_projector';
    END IF;
    IF role = 'convstore_projector' THEN -- all tenants, by a policy of its own, never by BYPASSRLS
      FOREACH relation IN ARRAY ARRAY['tenants', 'contexts', 'directory', 'streams', 'events', 'tasks', 'checkpoints'] LOOP
        IF NOT EXISTS (SELECT FROM pg_policies
                        WHERE schemaname = 'convstore' AND tablename = relation AND policyname = 'projector') THEN
          EXECUTE format('CREATE POLICY projector ON convstore.%I FOR SELECT TO convstore_projector USING (true)', relation);
        END IF;
      END LOOP;
    END IF;
  END LOOP;
END $$;

-- The login that migrates acts for every tenant.
INSERT INTO tenant_logins (login, tenant_id) VALUES (session_user, 0) ON CONFLICT DO NOTHING;

-- People with plain SQL find the tables without a prefix, after everything of their own; only where nobody chose otherwise.
DO $$
BEGIN
  IF (SELECT reset_val FROM pg_settings WHERE name = 'search_path') = '"$user", public' THEN
    EXECUTE format('ALTER DATABASE %I SET search_path = "$user", public, convstore', current_database());
  END IF;
EXCEPTION WHEN insufficient_privilege THEN NULL; -- a convenience, nothing depends on it
END $$;
