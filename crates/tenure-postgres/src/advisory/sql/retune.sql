-- Another ttl for a session.
SELECT pg_catalog.pg_try_advisory_lock_shared(1952804468, $1),
    pg_catalog.pg_advisory_unlock_shared(1952804468, $2),
    ARRAY(SELECT pg_catalog.set_config(s.name, s.value, false)
        FROM unnest($3, $4) AS s (name, value)
        JOIN pg_catalog.pg_settings AS known ON known.name = s.name)
