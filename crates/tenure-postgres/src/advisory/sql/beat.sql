-- A renewal: which of these locks does this very session hold?
SELECT pg_catalog.pg_backend_pid(),
    (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint,
    ARRAY(
        SELECT k.place FROM unnest($1) WITH ORDINALITY AS k (key, place)
        JOIN (
            SELECT (l.classid::bigint << 32) | l.objid::bigint AS number
            FROM pg_catalog.pg_locks AS l
            WHERE l.pid = pg_catalog.pg_backend_pid() AND l.locktype = 'advisory'
                AND l.objsubid = 1 AND l.mode = 'ExclusiveLock' AND l.granted
        ) AS l ON l.number = k.key
    )
