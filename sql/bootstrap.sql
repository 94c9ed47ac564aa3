-- What the runner itself needs. Safe to apply again.
CREATE SCHEMA IF NOT EXISTS convstore;
CREATE TABLE IF NOT EXISTS convstore.schema_migrations (
  name       text PRIMARY KEY,
  checksum   text NOT NULL,     -- sha256 of the file
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE IF NOT EXISTS convstore.schema_functions (
  name       text PRIMARY KEY,
  checksum   text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
