-- Tasks: one row each in its context, whatever branch speaks of it, so that its state can be locked. A row without a status
-- is a name that appends gave and nobody opened. The rows follow from the events; only append_tasks() changes a status.
CREATE TABLE tasks (
  context_id bigint NOT NULL,
  task_id    text COLLATE "C" NOT NULL,               -- as in events.task_id
  tenant_id  integer NOT NULL,
  status     text COLLATE "C" CHECK (status IN ('submitted', 'working', 'input-required', 'auth-required',
               'completed', 'canceled', 'failed', 'rejected')),
  closed     boolean GENERATED ALWAYS AS (status IN ('completed', 'canceled', 'failed', 'rejected')) STORED,
  stream_id  bigint,                                   -- of the event that gave it its status, with
  event_id   uuid,                                     -- its id
  PRIMARY KEY (context_id, task_id)
) WITH (fillfactor = 70);
ALTER TABLE tasks ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON tasks FOR SELECT USING (tenant_id = (SELECT convstore.visible_tenant()));
