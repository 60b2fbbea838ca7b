-- Posts of others are waited for only for a moment at a time: a leader of this process uses the
-- same session. The setting comes first, because the call takes a value from it.
SELECT p.place, p.id, p.is_new
FROM pg_catalog.set_config('lock_timeout', '100ms', true) AS s (wait),
    LATERAL @schema@.tenure_post_all(
        $1, CASE WHEN s.wait IS NOT NULL THEN $2 END, $3, $4, false) AS p
