"""The log: immutable events in Postgres. Nothing above it writes a row."""
