-- Elections by advisory locks need no table. Where this one is, each of their grants leaves its
-- term here, so that the fence, messages and the ledger work for them, too, and others can read
-- what the leader published.
--
-- Terms are numbers of transactions and do not fit into the integers of the table of leases.
CREATE TABLE IF NOT EXISTS @schema@.tenure_advisory (
    name text PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 255),
    key bigint NOT NULL,
    term bigint NOT NULL,
    -- The session that holds the lock, if the term is not over.
    pid integer NOT NULL,
    holder text NOT NULL,
    ttl_ms integer NOT NULL,
    since timestamptz NOT NULL,
    metadata jsonb
) WITH (fillfactor = 50);

-- Begins a term for elections whose locks the caller's session holds: a number for all of them, and
-- a row for each. Whoever is fenced keeps its successor out: such a row is skipped, nothing waits,
-- and the pids are told. A term that would not be above the last one is not issued.
--
-- Each election has the same place in all arrays; the masks are those of the term locks, by which
-- others read the term.
-- Of an election that is fenced, `above` is the term that is fenced: whoever waits for its end can
-- tell it from an earlier one.
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

-- Ends the sessions that still fence an election whose lock the caller holds, and so whose last
-- term is over (P3). Returns the pids. The caller needs the right to end them.
CREATE OR REPLACE FUNCTION @schema@.tenure_advisory_end_fence(p_name text) RETURNS integer[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
DECLARE
    v_key bigint := @schema@.tenure_fence_key(p_name);
    v_pids integer[];
BEGIN
    SELECT array_agg(l.pid) INTO v_pids FROM pg_locks AS l
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ShareLock'
        AND l.database = (SELECT d.oid FROM pg_database AS d
            WHERE d.datname = current_database())
        AND l.classid = ((v_key >> 32) & 4294967295)::oid
        AND l.objid = (v_key & 4294967295)::oid
        AND l.pid <> pg_backend_pid();
    PERFORM pg_terminate_backend(pid) FROM unnest(v_pids) AS pid;
    RETURN coalesce(v_pids, '{}');
END
$tenure$;

-- Whether the election of this name is one by an advisory lock: the greater of the last terms
-- tells. Somebody who moved from one kind to the other keeps terms rising (C5).
CREATE OR REPLACE FUNCTION @schema@.tenure_is_advisory(p_name text) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $tenure$
BEGIN
    RETURN EXISTS (SELECT FROM @schema@.tenure_advisory AS a WHERE a.name = p_name
        AND a.term > coalesce((SELECT t.term FROM @schema@.@table@ AS t
            WHERE t.service_name = p_name), 0));
END
$tenure$;

-- The part of the fence that is about advisory locks: the term must be the latest, and its lock
-- must be held, at this instant, by the session that got it. Returns how long the caller may be
-- silent, in milliseconds.
CREATE OR REPLACE FUNCTION @schema@.tenure_advisory_fence(p_name text, p_term bigint)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
DECLARE
    v_row record;
BEGIN
    SELECT a.term, a.key, a.pid, a.ttl_ms INTO v_row
    FROM @schema@.tenure_advisory AS a WHERE a.name = p_name FOR KEY SHARE;
    IF v_row.term <> p_term THEN
        RAISE EXCEPTION 'term % of % is stale, the latest is %', p_term, p_name, v_row.term
            USING ERRCODE = 'TN001', HINT = 'Roll back and stop: somebody else leads.';
    END IF;
    -- Its liveness lock tells the session from a later one of the same pid.
    IF (SELECT count(*) FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.granted AND l.pid = v_row.pid
            AND l.database = (SELECT d.oid FROM pg_database AS d
                WHERE d.datname = current_database())
            AND (l.objsubid = 1 AND l.classid = ((v_row.key >> 32) & 4294967295)::oid
                    AND l.objid = (v_row.key & 4294967295)::oid
                OR l.objsubid = 2 AND l.classid = 1952804469 AND l.objid = v_row.pid::oid)) < 2
    THEN
        RAISE EXCEPTION 'term % of % is over: its session does not hold the lock any more', p_term,
            p_name USING ERRCODE = 'TN001', HINT = 'Roll back and stop.';
    END IF;
    RETURN v_row.ttl_ms;
END
$tenure$;

-- The fence, for elections in the table and by advisory locks.
CREATE OR REPLACE FUNCTION @schema@.tenure_fence(name text, term bigint) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
#variable_conflict use_variable
DECLARE
    v_row record;
    v_left_ms bigint;
    v_idle_ms bigint;
BEGIN
    IF name IS NULL OR term IS NULL THEN
        RAISE EXCEPTION 'tenure_fence needs the name of an election and a term'
            USING ERRCODE = 'TN001';
    END IF;
    -- Row locks don't show who holds them; this one does (P3). Nobody takes it alone, so it
    -- never waits.
    PERFORM pg_advisory_xact_lock_shared(@schema@.tenure_fence_key(name));
    IF @schema@.tenure_is_advisory(name) THEN
        v_left_ms := @schema@.tenure_advisory_fence(name, term);
    ELSE
        SELECT t.term, t.leader_id,
            @schema@.tenure_expires(t.last_heartbeat, t.tenure_ttl_us, NULL) AS expires
        INTO v_row FROM @schema@.@table@ AS t WHERE t.service_name = name FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'nobody ever led %', name USING ERRCODE = 'TN001',
                HINT = 'Roll back.';
        END IF;
        IF v_row.term <> term THEN
            RAISE EXCEPTION 'term % of % is stale, the latest is %', term, name, v_row.term
                USING ERRCODE = 'TN001', HINT = 'Roll back and stop: somebody else leads.';
        END IF;
        v_left_ms := floor(extract(epoch FROM v_row.expires - clock_timestamp()) * 1000)::bigint;
        IF v_row.leader_id = '' OR v_left_ms < 0 THEN
            RAISE EXCEPTION 'term % of % is over: the lease % and nobody leads', term, name,
                CASE WHEN v_row.leader_id = '' THEN 'was given up' ELSE 'ran out' END
                USING ERRCODE = 'TN001', HINT = 'Roll back and stop. In an old snapshot a renewal '
                    'is not seen: call tenure_fence first in the transaction.';
        END IF;
    END IF;
    -- Whoever falls silent in the middle must not keep a successor out for ever. A shorter limit
    -- of the user's is kept; 0 would mean none.
    -- Written as in '90s' or '1min', which an interval is, too. The view of all settings would take
    -- longer than the rest.
    v_idle_ms := extract(epoch FROM
        current_setting('idle_in_transaction_session_timeout')::interval) * 1000;
    v_left_ms := least(greatest(v_left_ms, 1), 2147483647);
    IF v_idle_ms = 0 OR v_idle_ms > v_left_ms THEN
        PERFORM set_config('idle_in_transaction_session_timeout', v_left_ms::text, true);
    END IF;
    -- For tenure_guard. It is gone with the transaction or the savepoint, as the lock is (P4).
    PERFORM set_config('tenure.fenced', (coalesce(nullif(current_setting('tenure.fenced', true),
        ''), '{}')::jsonb || jsonb_build_object(name, term))::text, true);
END
$tenure$;
