-- The table of elections. It is created, or an older one is upgraded where it stands.
--
-- Words between at-signs are put in by tenure: quoted names and literals.
-- Everything here may run again, and at once with others: it holds the lock of the migration.

-- A row is never deleted: it keeps the term. A vacant one has an empty `leader_id`; a name that
-- nobody ever led has term 0. The columns of tenure's own come after those of the older design.
--
-- A term is `term + tenure_base`. The column of the older design stays an integer, which its
-- clients read; a floor that does not fit there is kept in the base. It is 0 or beyond all
-- integers, so that a number is never both a term and a column of different reigns: the fence
-- takes either.
-- Without an index but the key, and with room in each page, a renewal stays in its page (P5).
CREATE TABLE IF NOT EXISTS @schema@.@table@ (
    service_name varchar(255) PRIMARY KEY,
    leader_id varchar(255) NOT NULL,
    term integer NOT NULL DEFAULT 1,
    last_heartbeat timestamptz NOT NULL DEFAULT now(),
    metadata jsonb DEFAULT '{}',
    tenure_ttl_us bigint,
    tenure_seq bigint NOT NULL DEFAULT 0,
    tenure_asked boolean NOT NULL DEFAULT false,
    tenure_since timestamptz,
    tenure_base bigint NOT NULL DEFAULT 0 CHECK (tenure_base = 0 OR tenure_base > 2147483647)
) WITH (fillfactor = 40);

-- A table of another program must not be touched.
DO $tenure$
DECLARE
    v_wrong text;
BEGIN
    SELECT string_agg(format('%s must be %s', want.name, want.type), ', ' ORDER BY want.name)
    INTO v_wrong
    FROM (VALUES
        ('service_name', 'character varying(255)'),
        ('leader_id', 'character varying(255)'),
        ('term', 'integer'),
        ('last_heartbeat', 'timestamp with time zone'),
        ('metadata', 'jsonb')
    ) AS want (name, type)
    LEFT JOIN pg_catalog.pg_attribute AS has
        ON has.attrelid = @table_literal@::regclass AND has.attname = want.name
        AND NOT has.attisdropped
    WHERE has.attname IS NULL
        OR format_type(has.atttypid, has.atttypmod) <> want.type
            -- A wider or boundless text serves as well.
            AND NOT (want.type LIKE 'character varying%' AND format_type(has.atttypid, NULL)
                IN ('character varying', 'text'));
    IF v_wrong IS NOT NULL THEN
        RAISE EXCEPTION 'the table % has another shape: %', @table_literal@, v_wrong
            USING ERRCODE = 'TN002';
    END IF;
    IF NOT EXISTS (
        SELECT FROM pg_catalog.pg_index AS i
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = @table_literal@::regclass AND i.indisunique AND i.indnkeyatts = 1
            AND i.indpred IS NULL AND a.attname = 'service_name'
    ) THEN
        RAISE EXCEPTION 'the table % has another shape: service_name must be its primary key',
            @table_literal@ USING ERRCODE = 'TN002';
    END IF;
    -- Constant defaults are not written into each row: this takes an instant.
    IF (SELECT count(*) FROM pg_catalog.pg_attribute
        WHERE attrelid = @table_literal@::regclass AND NOT attisdropped AND attname IN
            ('tenure_ttl_us', 'tenure_seq', 'tenure_asked', 'tenure_since', 'tenure_base')) < 5
    THEN
        ALTER TABLE @schema@.@table@
            ADD COLUMN IF NOT EXISTS tenure_ttl_us bigint,
            ADD COLUMN IF NOT EXISTS tenure_seq bigint NOT NULL DEFAULT 0,
            ADD COLUMN IF NOT EXISTS tenure_asked boolean NOT NULL DEFAULT false,
            ADD COLUMN IF NOT EXISTS tenure_since timestamptz,
            ADD COLUMN IF NOT EXISTS tenure_base bigint NOT NULL DEFAULT 0
                CHECK (tenure_base = 0 OR tenure_base > 2147483647);
        ALTER TABLE @schema@.@table@ SET (fillfactor = 40);
    END IF;
END
$tenure$;

-- Terms of former stores: each term that is issued here is above all of these (C5). Rows are only
-- ever added, so that a restored dump can't lower it.
CREATE TABLE IF NOT EXISTS @schema@.tenure_floor (
    term bigint NOT NULL CHECK (term BETWEEN 1 AND 9007199254740990),
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
-- Without it the plan would be one that is worth compiling, in the eyes of a planner that is kept
-- from reading whole tables: half a second for the first grant of a session.
CREATE INDEX IF NOT EXISTS tenure_floor_term ON @schema@.tenure_floor (term);

-- Which acquires a release has overtaken (C2).
CREATE TABLE IF NOT EXISTS @schema@.@released@ (
    service_name varchar(255) NOT NULL,
    candidate_id varchar(255) NOT NULL,
    seq bigint NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (service_name, candidate_id)
);
CREATE INDEX IF NOT EXISTS @released_at@ ON @schema@.@released@ (at);

-- What does not fit would fail at the first long name, in the middle of a batch.
DO $tenure$
DECLARE
    v_narrow text;
BEGIN
    SELECT string_agg(format('%s must be character varying(255)', a.attname), ', '
        ORDER BY a.attname) INTO v_narrow
    FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = @table_literal@::regclass AND a.attname IN ('service_name', 'leader_id')
        -- The length and four more; -1 is without end.
        AND a.atttypmod BETWEEN 0 AND 258;
    IF v_narrow IS NOT NULL THEN
        RAISE EXCEPTION 'the table % has another shape: %', @table_literal@, v_narrow
            USING ERRCODE = 'TN002';
    END IF;
END
$tenure$;
