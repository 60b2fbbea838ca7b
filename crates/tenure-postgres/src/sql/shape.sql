-- What of tenure's is in a schema, in words that do not depend on its name: what it is, how it is
-- declared, and its body. The schema must be the search path. shape.txt has what there should be.
WITH place AS (
    SELECT n.oid FROM pg_catalog.pg_namespace AS n WHERE n.nspname = $1
), tables AS (
    SELECT c.oid, c.reloptions, CASE c.relname WHEN $2 THEN '@table@' WHEN $3 THEN '@released@'
        ELSE c.relname END AS name
    FROM place JOIN pg_catalog.pg_class AS c ON c.relnamespace = place.oid AND c.relkind = 'r'
    WHERE c.relname IN ($2, $3) OR c.relname LIKE 'tenure\_%'
)
SELECT 'function ' || p.proname || '(' || pg_catalog.pg_get_function_identity_arguments(p.oid)
        || ')' AS what,
    pg_catalog.concat_ws(' ', '(' || pg_catalog.pg_get_function_arguments(p.oid) || ')',
        'RETURNS', pg_catalog.pg_get_function_result(p.oid), l.lanname, p.provolatile,
        p.proparallel,
        -- Those of the older design stay what they were.
        CASE WHEN p.prosecdef AND p.proname LIKE 'tenure\_%' THEN 'SECURITY DEFINER' END,
        pg_catalog.array_to_string(p.proconfig, ' '),
        pg_catalog.pg_get_function_sqlbody(p.oid)) AS declared,
    coalesce(p.prosrc, '') AS body
FROM place JOIN pg_catalog.pg_proc AS p ON p.pronamespace = place.oid
JOIN pg_catalog.pg_language AS l ON l.oid = p.prolang
WHERE p.proname LIKE 'tenure\_%'
    OR p.proname IN ('try_become_leader', 'leader_heartbeat', 'step_down')
UNION ALL
SELECT 'table ' || t.name, CASE WHEN t.name = '@table@'
    THEN pg_catalog.array_to_string(t.reloptions, ' ') ELSE '' END, ''
FROM tables AS t
UNION ALL
SELECT 'column ' || t.name || '.' || a.attname,
    pg_catalog.format_type(a.atttypid, a.atttypmod), pg_catalog.concat_ws(' ',
        CASE WHEN a.attnotnull THEN 'NOT NULL' END,
        CASE WHEN a.attidentity <> '' THEN 'IDENTITY' END,
        'DEFAULT ' || pg_catalog.pg_get_expr(d.adbin, d.adrelid))
FROM tables AS t
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
-- The columns of the older design may be wider; that is for the migrations.
WHERE t.name <> '@table@' OR a.attname LIKE 'tenure\_%'
UNION ALL
SELECT DISTINCT 'constraint ' || t.name || ': ' || pg_catalog.pg_get_constraintdef(c.oid, true),
    '', ''
FROM tables AS t JOIN pg_catalog.pg_constraint AS c ON c.conrelid = t.oid
WHERE c.convalidated AND (c.contype = 'c' OR c.contype IN ('p', 'u') AND t.name <> '@table@')
UNION ALL
SELECT 'index ' || CASE c.relname WHEN $3 || '_at' THEN '@released_at@' ELSE c.relname END
        || ' of ' || t.name,
    pg_catalog.substring(pg_catalog.pg_get_indexdef(i.indexrelid, 0, true), ' USING (.*)$'), ''
FROM tables AS t JOIN pg_catalog.pg_index AS i ON i.indrelid = t.oid AND i.indisvalid
JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_constraint AS k WHERE k.conindid = c.oid)
UNION ALL
SELECT 'trigger ' || g.tgname || ' of ' || t.name, pg_catalog.concat_ws(' ', g.tgtype,
    g.tgenabled, pg_catalog.replace(pg_catalog.substring(
        pg_catalog.pg_get_triggerdef(g.oid, true), ' FOR EACH (.*)$'), '::text', '')), ''
FROM tables AS t JOIN pg_catalog.pg_trigger AS g ON g.tgrelid = t.oid AND NOT g.tgisinternal
WHERE g.tgname LIKE 'tenure\_%'
ORDER BY 1
