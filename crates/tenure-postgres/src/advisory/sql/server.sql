-- Which server this is, which of its sessions, whether the tables are there, and whether this role
-- may use them. Asked of the catalog: the name of a thing in a schema of others is an error.
SELECT pg_catalog.current_setting('server_version_num')::integer, pg_catalog.pg_is_in_recovery(),
    pg_catalog.pg_backend_pid(), t.there, t.there AND t.usable, (
        SELECT pg_catalog.string_agg(pg_catalog.quote_ident(n.nspname), ', ')
        FROM pg_catalog.pg_class AS c
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.relname = 'tenure_advisory' AND c.relkind = 'r' AND n.nspname <> $1
    )
FROM (
    SELECT pg_catalog.count(*) = 3 AS there,
        pg_catalog.bool_and(pg_catalog.has_schema_privilege(n.oid, 'USAGE')
            AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
            AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
            AND pg_catalog.has_table_privilege(c.oid, 'INSERT')
            AND pg_catalog.has_table_privilege(c.oid, 'UPDATE')
            AND pg_catalog.has_table_privilege(f.oid, 'SELECT')
            AND pg_catalog.has_table_privilege(l.oid, 'SELECT')
            AND pg_catalog.has_table_privilege(l.oid, 'INSERT')
            AND pg_catalog.has_table_privilege(l.oid, 'UPDATE')) AS usable
    FROM pg_catalog.pg_namespace AS n
    JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = 'tenure_advisory'
    LEFT JOIN pg_catalog.pg_class AS f ON f.relnamespace = n.oid AND f.relname = 'tenure_floor'
    LEFT JOIN pg_catalog.pg_class AS l ON l.relnamespace = n.oid AND l.relname = $2
    JOIN pg_catalog.pg_proc AS p ON p.pronamespace = n.oid
        AND p.proname IN ('tenure_advisory_begin', 'tenure_durably', 'tenure_fence_key')
    WHERE n.nspname = $1
) AS t
