-- The second half of `tried` and `looked`. Every join is by one number, so that no plan takes
-- longer than the locks are many. Locks are read after they were tried, and only if one of them
-- was not won: the condition makes it so. A holder of ours shows by its liveness lock; beside it
-- stand its ttl and, for each election, the term.
, locks AS MATERIALIZED (
    SELECT l.pid, l.classid::bigint AS hi, l.objid::bigint AS lo, l.objsubid AS form,
        (l.classid::bigint << 32) | l.objid::bigint AS number,
        (l.pid::bigint << 32) | l.classid::bigint AS beside
    FROM pg_catalog.pg_locks AS l
    WHERE (SELECT NOT pg_catalog.bool_and(t.won) FROM tried AS t)
        AND l.locktype = 'advisory' AND l.granted AND l.pid IS NOT NULL
        AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d
            WHERE d.datname = pg_catalog.current_database())
), live AS MATERIALIZED (
    SELECT l.pid FROM locks AS l WHERE l.form = 2 AND l.hi = 1952804469 AND l.lo = l.pid
), lasts AS MATERIALIZED (
    SELECT l.pid, l.lo AS ttl_ms FROM locks AS l WHERE l.form = 2 AND l.hi = 1952804468
), sessions AS MATERIALIZED (
    SELECT a.pid, a.application_name, a.state, a.state_change
    FROM pg_catalog.pg_stat_activity AS a
    WHERE (SELECT NOT pg_catalog.bool_and(t.won) FROM tried AS t)
), era AS MATERIALIZED (
    SELECT (pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint + $3) >> 32
        AS hi
)
SELECT t.place, t.won,
    (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint AS clock_us,
    h.pid, a.application_name, live.pid IS NOT NULL AS is_live, lasts.ttl_ms,
    CASE WHEN a.state = 'idle' THEN
        (extract(epoch FROM pg_catalog.clock_timestamp() - a.state_change) * 1000000)::bigint
    END AS idle_us,
    coalesce(now.hi, old.hi) AS term_hi, coalesce(now.lo, old.lo) AS term_lo,
    pg_catalog.pg_is_in_recovery() AS standby
FROM tried AS t CROSS JOIN era
LEFT JOIN locks AS h ON NOT t.won AND h.form = 1 AND h.number = t.key
LEFT JOIN live ON live.pid = h.pid
LEFT JOIN lasts ON lasts.pid = h.pid
LEFT JOIN locks AS now ON now.form = 2
    AND now.beside = ((h.pid::bigint << 32) | (t.hi # era.hi))
LEFT JOIN locks AS old ON old.form = 2
    AND old.beside = ((h.pid::bigint << 32) | (t.hi # greatest(era.hi - 1, 0)))
LEFT JOIN sessions AS a ON a.pid = h.pid
