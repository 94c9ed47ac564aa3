-- Reading the log by position: a tenant's feed without the others' events, and the mark that a stand-by reads up to.

CREATE INDEX events_tenant_position ON events (tenant_id, position);

-- Up to where the primary has said that nothing is in flight. A stand-by can't see the writers' stamps; by the order of
-- the WAL, all events up to a mark that it can see are visible there.
CREATE TABLE watermark (
  position    bigint NOT NULL DEFAULT 0,
  recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  one         boolean PRIMARY KEY DEFAULT true CHECK (one)
);
INSERT INTO watermark DEFAULT VALUES;
