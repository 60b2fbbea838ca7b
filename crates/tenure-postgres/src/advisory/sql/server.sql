-- Which server this is, which of its sessions, and whether the tables are there.
SELECT pg_catalog.current_setting('server_version_num')::integer, pg_catalog.pg_is_in_recovery(),
    pg_catalog.pg_backend_pid(), pg_catalog.to_regprocedure($1) IS NOT NULL
