-- Makes a session one that may hold locks: its liveness lock, its ttl for others to read, and the
-- name by which others know the holder.
SELECT pg_catalog.pg_try_advisory_lock(1952804469, pg_catalog.pg_backend_pid()),
    pg_catalog.pg_try_advisory_lock_shared(1952804468, $1),
    pg_catalog.pg_backend_pid(),
    ARRAY(SELECT pg_catalog.set_config(s.name, s.value, false)
        FROM unnest($2, $3) AS s (name, value)
        JOIN pg_catalog.pg_settings AS known ON known.name = s.name)
