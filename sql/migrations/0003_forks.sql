-- Forks. A fork writes little, so a branch's row leaves out what can be had elsewhere, and nothing is indexed for it alone.

ALTER TABLE streams
  ADD COLUMN fork_control bigint,              -- of a branch: control as of the fork point; null: none
  ADD COLUMN name text COLLATE "C",            -- as in the directory, which is looked up by name only
  ALTER COLUMN secret DROP NOT NULL;           -- of a branch: the context's
UPDATE streams s SET name = d.name FROM directory d WHERE d.context_id = s.context_id AND d.stream_id = s.stream_id;
ALTER TABLE streams ALTER COLUMN name SET NOT NULL;
ALTER TABLE directory DROP CONSTRAINT directory_context_id_stream_id_key;

-- Everything that is no item, by type: few rows among many, so an item does not pay for it.
CREATE INDEX events_other ON events (context_id, stream_id, type, version) WHERE type NOT IN ('item.appended', 'stream.forked');

-- Their answers have more columns now; functions/ has the new ones.
DROP FUNCTION IF EXISTS audit_streams(text, text, bigint, integer);
DROP FUNCTION IF EXISTS list_streams(text, text, jsonb, text, integer);
