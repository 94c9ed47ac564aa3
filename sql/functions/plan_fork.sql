-- What a fork comes to: where it branches off, or why not, or the branch that there is already. It only looks.
CREATE OR REPLACE FUNCTION plan_fork(
  p_tenant_id integer,
  p_parent    text,
  p_name      text,      -- these as in fork_stream()
  p_at        bigint,
  p_items     bigint,
  p_subject   text,
  p_item      uuid,
  p_event_id  uuid
) RETURNS append_result  -- outcome null: to be made after version first_version - 1, which stream stream_id owns
LANGUAGE plpgsql STABLE AS $$
DECLARE
  r       append_result;
  parent  record;
  branch  record;
  version bigint := p_at;
  items   bigint;
BEGIN
  SELECT d.context_id, d.stream_id, c.name AS context, s.head INTO parent
    FROM directory d JOIN contexts c USING (context_id) JOIN streams s USING (context_id, stream_id)
   WHERE d.tenant_id = p_tenant_id AND d.name = p_parent;
  IF NOT FOUND OR parent.head = 0 THEN
    r.outcome := 'no_parent';
    RETURN r;
  END IF;
  r.context_id := parent.context_id;
  r.context := parent.context;
  SELECT d.stream_id, s.parent_id, s.fork_at, e.event_id, e.position, p.name AS parent INTO branch
    FROM directory d
    LEFT JOIN streams s USING (context_id, stream_id)
    LEFT JOIN LATERAL ( -- by order: see chain_at()
         SELECT * FROM events o
          WHERE (o.context_id, o.stream_id, o.version) >= (s.context_id, s.stream_id, s.fork_at + 1)
          ORDER BY o.context_id, o.stream_id, o.version LIMIT 1) e
      ON (e.context_id, e.stream_id, e.version) = (s.context_id, s.stream_id, s.fork_at + 1)
    LEFT JOIN streams p ON p.context_id = s.context_id AND p.stream_id = s.parent_id
   WHERE d.tenant_id = p_tenant_id AND d.name = p_name;
  IF p_items IS NOT NULL OR p_subject IS NOT NULL OR p_item IS NOT NULL THEN
    SELECT f.version, f.items INTO version, items
      FROM fork_point(parent.context_id, parent.stream_id, p_items, p_subject, p_item) f;
  ELSIF p_at IS NULL THEN
    version := CASE WHEN branch.event_id = p_event_id THEN branch.fork_at ELSE parent.head END;
  END IF;
  IF version <= parent.head THEN
    r.first_version := version + 1;
    r.stream_id := parent.stream_id;
    IF version > 0 THEN
      r.stream_id := (SELECT l.stream_id FROM lineage(parent.context_id, parent.stream_id, version, version) l);
    END IF;
  END IF;
  IF branch.stream_id IS NOT NULL THEN
    r.outcome := CASE WHEN branch.parent_id = r.stream_id AND branch.fork_at = version THEN 'repeated'
                      WHEN branch.event_id = p_event_id THEN 'idempotency_conflict' ELSE 'exists' END;
    r.stream_id := branch.stream_id;
    r.first_version := branch.fork_at + 1;
    r.last_version := r.first_version;
    r.position := branch.position;
    r.detail := branch.parent;
  ELSIF r.first_version IS NULL THEN
    r.outcome := CASE WHEN p_at IS NULL AND p_items IS NULL THEN 'no_item' ELSE 'beyond_head' END;
    r.actual := coalesce(items, parent.head);
  END IF;
  RETURN r;
END $$;
