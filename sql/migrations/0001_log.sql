-- The log: who owns data, what streams there are, and their immutable events.
-- Every key of per-stream data starts with the context's id; only the directory is keyed by tenant and name.

CREATE TABLE tenants (
  tenant_id  integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name       text COLLATE "C" NOT NULL UNIQUE,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The login proves: which logins may act for which tenant.
CREATE TABLE tenant_logins (
  login     name NOT NULL,
  tenant_id integer NOT NULL,                          -- 0: for all of them
  PRIMARY KEY (login, tenant_id)
);

CREATE TABLE contexts (
  context_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant_id  integer NOT NULL,
  name       text COLLATE "C" NOT NULL,
  secret     bytea NOT NULL DEFAULT uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()),
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (tenant_id, name)
);

CREATE TABLE directory (
  tenant_id  integer NOT NULL,
  name       text COLLATE "C" NOT NULL,
  context_id bigint NOT NULL,
  stream_id  bigint GENERATED ALWAYS AS IDENTITY,
  tags       jsonb NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant_id, name),
  UNIQUE (context_id, stream_id)
);

-- One row a stream, locked by each append. Nothing that an append changes is indexed, so every update stays HOT.
CREATE TABLE streams (
  context_id  bigint NOT NULL,
  stream_id   bigint NOT NULL,
  head        bigint NOT NULL DEFAULT 0,               -- version of the last event
  control     bigint NOT NULL DEFAULT 0,               -- version of the last event that changes a transcript
  recorded_at timestamptz NOT NULL DEFAULT '-infinity',
  closed      boolean NOT NULL DEFAULT false,
  tenant_id   integer NOT NULL,
  parent_id   bigint,                                  -- the stream that owns the event at the fork point
  fork_at     bigint,
  origin      bytea NOT NULL,                          -- digest of the names of tenant, context, stream
  secret      bytea NOT NULL,                          -- the context's, which salts the hashes of data
  PRIMARY KEY (context_id, stream_id)
) WITH (fillfactor = 70);

-- 48 bits, so that a position fits beside the namespace in an advisory lock's key.
CREATE SEQUENCE position AS bigint MINVALUE 0 START 0 MAXVALUE 281474976710655 CACHE 1 NO CYCLE;
SELECT nextval('position'); -- uses up 0: from here on the last value is one that was drawn

CREATE TABLE events (
  context_id     bigint NOT NULL,
  stream_id      bigint NOT NULL,
  version        bigint NOT NULL,
  position       bigint NOT NULL,
  recorded_at    timestamptz NOT NULL,
  event_id       uuid NOT NULL,
  tenant_id      integer NOT NULL,
  schema_version smallint NOT NULL,
  format         smallint NOT NULL,                    -- who wrote data and can read it back: 1 orjson, 2 json
  hash           bytea NOT NULL,
  chain          bytea,                                -- on the last row of an append
  type           text COLLATE "C" NOT NULL,
  subject        text COLLATE "C",
  agent          text COLLATE "C",
  call_id        text COLLATE "C",
  task_id        text COLLATE "C",
  run_id         text COLLATE "C",
  unique_key     text COLLATE "C",
  metadata       json,
  data           json NOT NULL,                        -- byte for byte what the client encoded
  PRIMARY KEY (context_id, stream_id, version),
  CHECK (position > 0 AND version > 0 AND schema_version > 0 AND format IN (1, 2)
    AND (metadata IS NULL OR json_typeof(metadata) = 'object')) -- one constraint: each is set up at every insert
);
CREATE UNIQUE INDEX events_position ON events (position);
CREATE UNIQUE INDEX events_event_id ON events (context_id, stream_id, event_id);
CREATE UNIQUE INDEX events_unique_key ON events (context_id, unique_key) WHERE unique_key IS NOT NULL;
CREATE INDEX events_subject ON events (context_id, subject) WHERE subject IS NOT NULL;

-- One row: which life of this log it is. Cursors and cached ids belong to one incarnation.
CREATE TABLE store (
  incarnation uuid NOT NULL DEFAULT gen_random_uuid(),
  created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  one         boolean PRIMARY KEY DEFAULT true CHECK (one)
);
INSERT INTO store DEFAULT VALUES;

-- What an append answers; a refusal is an answer, not an exception, so the caller's transaction lives on.
CREATE TYPE append_result AS (
  outcome       text,     -- appended, repeated, version_conflict, idempotency_conflict, context_mismatch, closed, unique_key
  context_id    bigint,
  stream_id     bigint,
  context       text,     -- set where the stream was found by name
  first_version bigint,
  last_version  bigint,
  position      bigint,   -- of the last event
  actual        bigint,   -- the head found, where the version did not fit
  detail        text      -- what was found instead
);

-- What an append finds when it has locked its stream.
CREATE TYPE append_place AS (
  result      append_result,
  tenant_id   integer,
  recorded_at timestamptz,
  previous    bytea,      -- the chain before this append
  origin      bytea,
  secret      bytea
);

-- The setting selects: rows of the tenant in convstore.tenant, where the login is bound to it. The functions run as
-- the owner, whom policies pass by, and ask tenant_of() themselves.
ALTER TABLE tenants ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenant_logins ENABLE ROW LEVEL SECURITY;
ALTER TABLE contexts ENABLE ROW LEVEL SECURITY;
ALTER TABLE directory ENABLE ROW LEVEL SECURITY;
ALTER TABLE streams ENABLE ROW LEVEL SECURITY;
ALTER TABLE events ENABLE ROW LEVEL SECURITY;
CREATE FUNCTION visible_tenant() RETURNS integer LANGUAGE sql STABLE AS 'SELECT NULL::integer'; -- its body is in functions/
CREATE POLICY tenant ON tenants FOR SELECT USING (tenant_id = (SELECT convstore.visible_tenant()));
CREATE POLICY tenant ON contexts FOR SELECT USING (tenant_id = (SELECT convstore.visible_tenant()));
CREATE POLICY tenant ON directory FOR SELECT USING (tenant_id = (SELECT convstore.visible_tenant()));
CREATE POLICY tenant ON streams FOR SELECT USING (tenant_id = (SELECT convstore.visible_tenant()));
CREATE POLICY tenant ON events FOR SELECT USING (tenant_id = (SELECT convstore.visible_tenant()));
