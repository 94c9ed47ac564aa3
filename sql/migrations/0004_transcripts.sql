-- Transcripts: where their version ranges stood at some control events, so that a reader folds few of them. Written with
-- a later control event, in its transaction; they can be folded again from the events at any time.
CREATE TABLE checkpoints (
  context_id bigint NOT NULL,
  stream_id  bigint NOT NULL,
  version    bigint NOT NULL,                          -- of the control event that was folded last
  tenant_id  integer NOT NULL,
  ranges     json NOT NULL,
  PRIMARY KEY (context_id, stream_id, version)
);
ALTER TABLE checkpoints ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON checkpoints FOR SELECT USING (tenant_id = (SELECT convstore.visible_tenant()));
