-- What has been done to this schema, and for which table: one deployment per schema.
DO $tenure$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = @schema_literal@) THEN
        CREATE SCHEMA @schema@;
    END IF;
END
$tenure$;
CREATE TABLE IF NOT EXISTS @schema@.tenure_migrations (
    version integer PRIMARY KEY,
    table_name text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
DO $tenure$
DECLARE
    v_other text := (SELECT min(m.table_name) FROM @schema@.tenure_migrations AS m
        WHERE m.table_name <> @table_literal@);
BEGIN
    IF v_other IS NOT NULL THEN
        RAISE EXCEPTION 'the schema % is in use for the table %', @schema_literal@, v_other
            USING ERRCODE = 'TN002';
    END IF;
END
$tenure$;
