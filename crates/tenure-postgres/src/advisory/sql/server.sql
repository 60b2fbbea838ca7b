-- Which server this is, which of its sessions, whether the tables are there, and whether this role
-- may use them. Asked of the catalog: the name of a thing in a schema of others is an error.
SELECT pg_catalog.current_setting('server_version_num')::integer, pg_catalog.pg_is_in_recovery(),
    pg_catalog.pg_backend_pid(), t.there, t.there AND t.usable
FROM (
    SELECT pg_catalog.count(*) = 3 AS there,
        pg_catalog.bool_and(pg_catalog.has_schema_privilege(n.oid, 'USAGE')
            AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
            AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
            AND pg_catalog.has_table_privilege(c.oid, 'INSERT')
            AND pg_catalog.has_table_privilege(c.oid, 'UPDATE')) AS usable
    FROM pg_catalog.pg_namespace AS n
    JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = 'tenure_advisory'
    JOIN pg_catalog.pg_proc AS p ON p.pronamespace = n.oid
        AND p.proname IN ('tenure_advisory_begin', 'tenure_durably', 'tenure_fence_key')
    WHERE n.nspname = $1
) AS t
