-- What is wrong with the sequences, a line each: positions or ids that would be drawn twice, or not in order. A stand-by
-- has none of its own. One statement: what its snapshot shows was drawn before it reads the sequences, so a writer beside
-- it is never mistaken for a fault. The streams looked at are those of the newest context; repair_sequences() reads all.
CREATE OR REPLACE FUNCTION sequence_faults() RETURNS SETOF text
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, convstore, pg_temp SET enable_seqscan = off AS $$
  WITH seq AS (
    SELECT c.relname, c.relpersistence, q.*, pg_sequence_last_value(c.oid) AS drawn
      FROM pg_class c JOIN pg_sequence q ON q.seqrelid = c.oid
     WHERE c.relnamespace = 'convstore'::regnamespace AND NOT pg_is_in_recovery()
  ), top AS (
    SELECT (SELECT e.position FROM events e ORDER BY e.position DESC LIMIT 1) AS event,
           (SELECT w.position FROM watermark w) AS watermark
  )
  SELECT 'sequence position does not exist'
   WHERE NOT pg_is_in_recovery() AND NOT EXISTS (SELECT FROM seq WHERE relname = 'position')
  UNION ALL
  SELECT format('sequence position has %s %s instead of %s', v.what, v.given, v.wanted)
    FROM seq CROSS JOIN LATERAL (VALUES
           ('type', format_type(seqtypid, NULL), 'bigint'), ('CACHE', seqcache::text, '1'),
           ('INCREMENT', seqincrement::text, '1'), ('MINVALUE', seqmin::text, '0'),
           ('MAXVALUE', seqmax::text, '281474976710655'), ('CYCLE', seqcycle::text, 'false'),
           ('persistence', CASE relpersistence WHEN 'p' THEN 'logged' ELSE 'unlogged' END, 'logged')) AS v (what, given, wanted)
   WHERE relname = 'position' AND v.given <> v.wanted
  UNION ALL
  SELECT CASE WHEN drawn < event THEN format('sequence position is at %s, below position %s of an event', drawn, event)
              WHEN drawn < watermark THEN format('sequence position is at %s, below position %s of the watermark', drawn, watermark)
              WHEN drawn > 281474976710655 THEN format('sequence position is at %s, above 281474976710655', drawn)
              ELSE format('sequence position was restarted and has drawn nothing; %s',
                     coalesce('there are events up to position ' || event, 'there are no events')) END
    FROM seq CROSS JOIN top
   WHERE relname = 'position' AND (drawn IS NULL OR drawn < event OR drawn < watermark OR drawn > 281474976710655)
  UNION ALL
  SELECT format('sequence %s is at %s, below the id %s of a row', seq.relname, coalesce(drawn::text, 'its start'), t.id)
    FROM seq JOIN (VALUES
           ('tenants_tenant_id_seq', (SELECT tenant_id FROM tenants ORDER BY tenant_id DESC LIMIT 1)::bigint),
           ('contexts_context_id_seq', (SELECT context_id FROM contexts ORDER BY context_id DESC LIMIT 1)),
           ('directory_stream_id_seq', (SELECT stream_id FROM streams ORDER BY context_id DESC, stream_id DESC LIMIT 1))
         ) AS t (relname, id) ON t.relname = seq.relname
   WHERE coalesce(drawn, 0) < t.id
$$;
