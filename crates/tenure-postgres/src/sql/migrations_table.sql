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
-- A dump of data has these rows, too, and is restored where they are there already (P8).
CREATE OR REPLACE FUNCTION @schema@.tenure_known_version() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
BEGIN
    IF EXISTS (SELECT FROM @schema@.tenure_migrations AS m WHERE m.version = NEW.version
        AND m.table_name = NEW.table_name)
    THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END
$tenure$;
DO $tenure$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS t
        JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE t.tgname = 'tenure_known_version' AND n.nspname = @schema_literal@)
    THEN
        CREATE TRIGGER tenure_known_version BEFORE INSERT ON @schema@.tenure_migrations
            FOR EACH ROW EXECUTE FUNCTION @schema@.tenure_known_version();
    END IF;
END
$tenure$;
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
