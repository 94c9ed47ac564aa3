-- Projections: how far each read model has come, and the events that it could not take. The read models themselves are
-- made by whoever runs them: a table a build in convstore_builds, and in convstore_views the views of the builds that are live.
CREATE SCHEMA IF NOT EXISTS convstore_builds;
CREATE SCHEMA IF NOT EXISTS convstore_views;

-- One row a build. It is claimed by FOR UPDATE SKIP LOCKED, and changes in the transaction that changes the read model.
CREATE TABLE projections (
  build         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name          text COLLATE "C" NOT NULL,
  version       integer NOT NULL CHECK (version > 0),
  state         text NOT NULL DEFAULT 'building' CHECK (state IN ('building', 'live', 'retired')),
  tables        text[] NOT NULL,
  views         text[] NOT NULL,
  cursor        text,                                  -- of the feed; null: the beginning
  position      bigint NOT NULL DEFAULT 0,             -- of the event there: all up to it is dealt with
  applied       bigint NOT NULL DEFAULT 0,             -- events
  parked        bigint NOT NULL DEFAULT 0,             -- rows of parked
  accept_parked boolean NOT NULL DEFAULT false,        -- go live although the build before holds events that this one can't take
  failures      integer NOT NULL DEFAULT 0,            -- of the batch that is next
  retry_at      timestamptz NOT NULL DEFAULT '-infinity',
  stopped       boolean NOT NULL DEFAULT false,        -- until a worker is started again
  error         text,                                  -- the last one, null once it is over
  worker        text,                                  -- who was here last
  created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  live_at       timestamptz
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX projections_one ON projections (name, state) WHERE state <> 'retired';

-- Events that a build could not take. Where the order counts, those behind one of them in its stream or context wait with it.
CREATE TABLE parked (
  build     integer NOT NULL REFERENCES projections ON DELETE CASCADE,
  position  bigint NOT NULL,
  tenant    text COLLATE "C",
  context   text COLLATE "C",
  stream    text COLLATE "C",
  version   bigint NOT NULL,
  event_id  uuid NOT NULL,
  type      text COLLATE "C" NOT NULL,
  error     text NOT NULL,
  attempts  integer NOT NULL DEFAULT 1,
  held      bigint NOT NULL DEFAULT 0,                 -- events that wait behind it
  parked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (build, position)
);
CREATE INDEX parked_stream ON parked (build, tenant, stream);
CREATE INDEX parked_context ON parked (build, tenant, context);
