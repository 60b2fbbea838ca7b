-- Nothing waits without a bound, and nothing is cut short that is too long for a column.

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

-- Posts some messages, as before, but does not wait for ever: another transaction that has posted
-- to the same channel and is not over within 2 s raises lock_not_available (55P03). A shorter limit
-- of the caller's is kept. The leader is not told through a queue that is filling up, because a
-- full one fails the commit (M2); it looks by itself.
CREATE OR REPLACE FUNCTION @schema@.tenure_post_all(
    p_election text, p_channel text[], p_payload text[], p_key text[], p_wake boolean DEFAULT true
) RETURNS TABLE (place bigint, id bigint, is_new boolean)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
#variable_conflict use_column
DECLARE
    v_key bigint;
    v_wait text := current_setting('lock_timeout');
BEGIN
    PERFORM @schema@.tenure_durably();
    -- Written as in '70ms' or '1min', which an interval is, too; 0 is without end.
    IF v_wait::interval NOT BETWEEN interval '1 ms' AND interval '2 s' THEN
        PERFORM set_config('lock_timeout', '2s', true);
    END IF;
    -- In one order, so that two batches never wait for each other.
    FOR v_key IN
        SELECT DISTINCT @schema@.tenure_channel_key(p_election, c) FROM unnest(p_channel) AS c
        ORDER BY 1
    LOOP
        PERFORM pg_advisory_xact_lock(v_key);
    END LOOP;
    -- What the caller does next waits as it did before.
    PERFORM set_config('lock_timeout', v_wait, true);
    RETURN QUERY
    WITH given AS (
        SELECT g.channel, g.payload, g.key, g.place, row_number() OVER (
            PARTITION BY g.channel, g.key ORDER BY g.place) AS nth
        FROM unnest(p_channel, p_payload, p_key) WITH ORDINALITY
            AS g (channel, payload, key, place)
    ), added AS (
        INSERT INTO @schema@.tenure_message AS m (election, channel, payload, key)
        SELECT p_election, g.channel, g.payload, g.key FROM given AS g WHERE g.nth = 1
        ORDER BY g.place
        ON CONFLICT (election, channel, key) DO NOTHING
        RETURNING m.id, m.channel, m.key
    )
    SELECT g.place, coalesce(a.id, o.id), a.id IS NOT NULL AND g.nth = 1
    FROM given AS g
    LEFT JOIN added AS a ON a.channel = g.channel AND a.key = g.key
    LEFT JOIN @schema@.tenure_message AS o
        ON o.election = p_election AND o.channel = g.channel AND o.key = g.key
    ORDER BY g.place;
    IF p_wake AND pg_notification_queue_usage() < 0.5 THEN
        PERFORM pg_notify(@posts_literal@, p_election);
    END IF;
END
$tenure$;

-- A message that somebody acknowledges in a transaction that is not over is waited for, 2 s at
-- most: a call that nobody waits for any more must not stay in the line.
ALTER FUNCTION @schema@.tenure_take(text, bigint, text, integer) SET lock_timeout = '2s';
ALTER FUNCTION @schema@.tenure_acknowledge(text, bigint, text, bigint) SET lock_timeout = '2s';
ALTER FUNCTION @schema@.tenure_replay(text, bigint[]) SET lock_timeout = '2s';

-- Begins a term, as before. Of an election that is fenced, `above` is now the term that is fenced:
-- whoever waits for its end can tell it from an earlier one.
CREATE OR REPLACE FUNCTION @schema@.tenure_advisory_begin(
    p_names text[], p_keys bigint[], p_metadata text[], p_hi integer[], p_lo integer[],
    p_candidate text, p_ttl_ms integer, p_offset bigint
) RETURNS TABLE (place bigint, term bigint, above bigint, fenced_by integer[], clock_us bigint)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
#variable_conflict use_variable
DECLARE
    o record;
    v_last bigint;
    v_term bigint;
BEGIN
    PERFORM @schema@.tenure_durably();
    PERFORM pg_logical_emit_message(true, 'tenure', '');
    v_term := pg_current_xact_id()::text::bigint + p_offset;
    INSERT INTO @schema@.tenure_advisory (name, key, term, pid, holder, ttl_ms, since)
    SELECT n.name, n.key, 0, 0, '', 0, clock_timestamp()
    FROM unnest(p_names, p_keys) AS n (name, key)
    ORDER BY n.name ON CONFLICT DO NOTHING;
    FOR o IN
        SELECT n.* FROM unnest(p_names, p_keys, p_metadata, p_hi, p_lo) WITH ORDINALITY
            AS n (name, key, metadata, hi, lo, place) ORDER BY n.name
    LOOP
        place := o.place;
        term := NULL;
        above := NULL;
        fenced_by := NULL;
        SELECT a.term INTO v_last FROM @schema@.tenure_advisory AS a
        WHERE a.name = o.name FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            SELECT a.term INTO above FROM @schema@.tenure_advisory AS a WHERE a.name = o.name;
            -- A prepared transaction has no pid.
            SELECT coalesce(array_agg(coalesce(l.pid, 0)), '{}') INTO fenced_by
            FROM pg_locks AS l CROSS JOIN @schema@.tenure_fence_key(o.name) AS k (key)
            WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ShareLock'
                AND l.database = (SELECT d.oid FROM pg_database AS d
                    WHERE d.datname = current_database())
                AND l.classid = ((k.key >> 32) & 4294967295)::oid
                AND l.objid = (k.key & 4294967295)::oid;
        ELSIF v_last >= v_term THEN
            above := v_last;
            term := v_term;
        ELSE
            UPDATE @schema@.tenure_advisory AS a SET key = o.key, term = v_term,
                pid = pg_backend_pid(), holder = p_candidate, ttl_ms = p_ttl_ms,
                since = clock_timestamp(), metadata = o.metadata::jsonb
            WHERE a.name = o.name;
            PERFORM pg_try_advisory_lock(o.hi # (v_term >> 32)::integer,
                o.lo # (((v_term & 4294967295) # 2147483648) - 2147483648)::integer);
            term := v_term;
        END IF;
        clock_us := extract(epoch FROM clock_timestamp()) * 1000000;
        RETURN NEXT;
    END LOOP;
END
$tenure$;

-- Issues a term once, for an election of its own, and undoes it: see tenure_warm_up.
CREATE OR REPLACE FUNCTION @schema@.tenure_advisory_warm_up() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
DECLARE
    v_term bigint;
BEGIN
    BEGIN
        SELECT b.term INTO v_term FROM @schema@.tenure_advisory_begin(
            ARRAY['tenure warm-up ' || pg_backend_pid()], ARRAY[0], ARRAY['{}'], ARRAY[0],
            ARRAY[0], 'tenure', 0, 0) AS b;
        -- Nothing else undoes this.
        PERFORM pg_advisory_unlock((v_term >> 32)::integer,
            (((v_term & 4294967295) # 2147483648) - 2147483648)::integer);
        RAISE EXCEPTION USING ERRCODE = 'TN005', MESSAGE = 'undone';
    EXCEPTION WHEN SQLSTATE 'TN005' THEN
        NULL;
    END;
    -- Nobody listens there, and it is not waited for: whoever notifies keeps out all others who do,
    -- until its commit is over.
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM pg_notify('tenure:warm-up', '');
END
$tenure$;
