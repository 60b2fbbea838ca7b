-- Whether the table is there, and this role may read it.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_namespace AS n
    JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = 'tenure_advisory'
    WHERE n.nspname = $1 AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
        AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
)
