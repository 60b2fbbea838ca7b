-- One message to all who listen, once what it is about is done. It need not survive a crash.
SELECT pg_catalog.set_config('synchronous_commit', 'off', true), pg_catalog.pg_notify($1, $2)
