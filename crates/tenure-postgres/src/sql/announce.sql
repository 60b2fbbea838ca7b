SELECT pg_catalog.pg_notify($1, payload)
FROM pg_catalog.set_config('synchronous_commit', 'off', true), pg_catalog.unnest($2) AS payload
