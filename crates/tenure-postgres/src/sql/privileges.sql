-- What the present role lacks of what roles.sql grants, and whether nobody can lead without it.
-- Nothing is said of what is not there: that is for the migrations.
WITH place AS (
    SELECT n.oid FROM pg_catalog.pg_namespace AS n WHERE n.nspname = $1
), wanted (name, privileges, to_lead) AS (
    VALUES
        ($2, '{SELECT,INSERT,UPDATE}'::text[], true),
        ($3, '{SELECT,INSERT,UPDATE,DELETE}', true),
        ('tenure_migrations', '{SELECT}', true),
        ('tenure_floor', '{SELECT}', true),
        ('tenure_advisory', '{SELECT,INSERT,UPDATE}', true),
        ('tenure_message', '{SELECT,INSERT,UPDATE,DELETE}', false),
        ('tenure_ledger', '{SELECT,INSERT,UPDATE,DELETE}', false),
        ('tenure_ledger_job', '{SELECT,INSERT,UPDATE,DELETE}', false),
        ('tenure_once_key', '{SELECT,INSERT,UPDATE}', false)
)
SELECT 'USAGE on the schema ' || pg_catalog.quote_ident($1), true
FROM place
WHERE NOT pg_catalog.has_schema_privilege(place.oid, 'USAGE')
UNION ALL
SELECT lacking.names || ' on ' || pg_catalog.quote_ident($1) || '.'
    || pg_catalog.quote_ident(wanted.name), wanted.to_lead
FROM place
JOIN pg_catalog.pg_class AS c ON c.relnamespace = place.oid
JOIN wanted ON wanted.name = c.relname
CROSS JOIN LATERAL (
    SELECT pg_catalog.string_agg(privilege, ', ') AS names
    FROM pg_catalog.unnest(wanted.privileges) AS privilege
    WHERE NOT pg_catalog.has_table_privilege(c.oid, privilege)
) AS lacking
WHERE lacking.names IS NOT NULL
UNION ALL
SELECT 'EXECUTE on ' || pg_catalog.string_agg(
    pg_catalog.quote_ident($1) || '.' || pg_catalog.quote_ident(p.proname), ', '
    ORDER BY p.proname), true
FROM place
JOIN pg_catalog.pg_proc AS p ON p.pronamespace = place.oid
WHERE p.proname LIKE 'tenure\_%' AND p.proname NOT IN ('tenure_raise_terms',
        -- For others, and granted by hand.
        'tenure_call', 'tenure_try_lead', 'tenure_renew', 'tenure_release')
    AND NOT pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
    -- A trigger asks nobody for it.
    AND p.prorettype <> 'pg_catalog.trigger'::pg_catalog.regtype
HAVING pg_catalog.count(*) > 0
