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
    metadata jsonb,
    -- Whether the election is one by an advisory lock at present, and not one in the table of
    -- leases (P8). It changes with the hands, and only from somebody who does not lead any more.
    leads boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

-- By which lock others see that a transaction is fenced by an advisory election. It is of the
-- election's lock alone: candidates of another schema compete for the same one.
CREATE OR REPLACE FUNCTION @schema@.tenure_advisory_fence_key(p_key bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN pg_catalog.hashtextextended(p_key::text, 1414213);

-- Whether this session holds the lock of an election. Its liveness lock tells it from a later one
-- of the same pid.
CREATE OR REPLACE FUNCTION @schema@.tenure_advisory_holds(p_pid integer, p_key bigint)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
BEGIN
    RETURN (SELECT count(*) FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.granted AND l.pid = p_pid
            AND l.database = (SELECT d.oid FROM pg_database AS d
                WHERE d.datname = current_database())
            AND (l.objsubid = 1 AND l.classid = ((p_key >> 32) & 4294967295)::oid
                    AND l.objid = (p_key & 4294967295)::oid
                OR l.objsubid = 2 AND l.classid = 1952804469 AND l.objid = p_pid::oid)) >= 2;
END
$tenure$;

-- Makes the election one of the table of leases, for whoever has locked its row there and is about
-- to take it. `held`: an advisory lock leads it. `busy`: a transaction is at it, a fenced one
-- perhaps. `free`: it is done, and the new term must be above this one.
CREATE OR REPLACE FUNCTION @schema@.tenure_leave_advisory(p_name text)
RETURNS TABLE (state text, term bigint, holder text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
#variable_conflict use_column
DECLARE
    v_row record;
BEGIN
    SELECT a.term, a.leads INTO v_row FROM @schema@.tenure_advisory AS a WHERE a.name = p_name;
    IF NOT FOUND OR NOT v_row.leads THEN
        RETURN QUERY SELECT 'free', coalesce(v_row.term, 0::bigint), NULL::text;
        RETURN;
    END IF;
    SELECT a.* INTO v_row FROM @schema@.tenure_advisory AS a
    WHERE a.name = p_name FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'busy', 0::bigint, NULL::text;
    ELSIF @schema@.tenure_advisory_holds(v_row.pid, v_row.key) THEN
        RETURN QUERY SELECT 'held', v_row.term, v_row.holder;
    ELSE
        UPDATE @schema@.tenure_advisory AS a SET leads = false WHERE a.name = p_name;
        RETURN QUERY SELECT 'free', v_row.term, NULL::text;
    END IF;
END
$tenure$;

-- For those who write to the table by hand.
CREATE OR REPLACE FUNCTION @schema@.tenure_refuse_other(
    p_name text, p_state text, p_holder text
) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
BEGIN
    IF p_state = 'held' THEN
        RAISE EXCEPTION 'the election % is led by an advisory lock, as %', p_name, p_holder
            USING ERRCODE = 'TN003';
    ELSIF p_state = 'busy' THEN
        RAISE EXCEPTION 'another transaction is at the election %', p_name
            USING ERRCODE = 'lock_not_available';
    END IF;
END
$tenure$;

-- Begins a term for elections whose locks the caller's session holds: a number for all of them, and
-- a row for each. Whoever is fenced keeps its successor out: such a row is skipped, nothing waits,
-- and the pids are told. An election that is led in the table of leases is left alone, and its
-- leader is told (P8). A term is above all that were issued before, and at least what is asked for:
-- where the number is not, the next one that is.
--
-- Each election has the same place in all arrays; the masks are those of the term locks, by which
-- others read the term.
-- Of an election that is fenced, `above` is the term that is fenced: whoever waits for its end can
-- tell it from an earlier one.
CREATE OR REPLACE FUNCTION @schema@.tenure_advisory_begin(
    p_names text[], p_keys bigint[], p_metadata text[], p_hi integer[], p_lo integer[],
    p_least bigint[], p_candidate text, p_ttl_ms integer, p_offset bigint
) RETURNS TABLE (
    place bigint, term bigint, above bigint, fenced_by integer[], clock_us bigint, led_by text
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
#variable_conflict use_variable
DECLARE
    o record;
    r record;
    v_lease @schema@.@table@%ROWTYPE;
    v_term bigint;
    v_number bigint;
    v_fenced bigint[];
    v_busy boolean;
BEGIN
    PERFORM @schema@.tenure_durably();
    PERFORM pg_logical_emit_message(true, 'tenure', '');
    v_number := greatest(pg_current_xact_id()::text::bigint + p_offset, @schema@.tenure_least());
    -- The locks of the elections are held: whoever is not seen here is refused by the fence.
    v_fenced := ARRAY(
        SELECT (l.classid::bigint << 32) | l.objid::bigint FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ShareLock'
            AND l.database = (SELECT d.oid FROM pg_database AS d
                WHERE d.datname = current_database()));
    INSERT INTO @schema@.tenure_advisory (name, key, term, pid, holder, ttl_ms, since)
    SELECT n.name, n.key, 0, 0, '', 0, clock_timestamp()
    FROM unnest(p_names, p_keys) AS n (name, key)
    ORDER BY n.name ON CONFLICT DO NOTHING;
    FOR o IN
        SELECT n.* FROM unnest(p_names, p_keys, p_metadata, p_hi, p_lo, p_least)
            WITH ORDINALITY AS n (name, key, metadata, hi, lo, least, place) ORDER BY n.name
    LOOP
        place := o.place;
        term := NULL;
        above := NULL;
        fenced_by := NULL;
        led_by := NULL;
        v_lease := NULL;
        SELECT a.* INTO r FROM @schema@.tenure_advisory AS a
        WHERE a.name = o.name FOR UPDATE SKIP LOCKED;
        v_busy := NOT FOUND OR @schema@.tenure_advisory_fence_key(o.key) = ANY (v_fenced);
        IF NOT v_busy AND NOT r.leads THEN
            -- It was one of the table of leases, or nobody's. With its row there nobody begins a
            -- reign beside this one.
            PERFORM set_config('tenure.own', 'on', true);
            INSERT INTO @schema@.@table@ (service_name, leader_id, term)
            VALUES (o.name, '', 0) ON CONFLICT (service_name) DO NOTHING;
            SELECT t.* INTO v_lease FROM @schema@.@table@ AS t
            WHERE t.service_name = o.name FOR UPDATE SKIP LOCKED;
            v_busy := NOT FOUND;
            IF v_lease.leader_id <> '' THEN
                IF clock_timestamp() < @schema@.tenure_expires(
                    v_lease.last_heartbeat, v_lease.tenure_ttl_us, NULL)
                THEN
                    led_by := v_lease.leader_id;
                ELSE
                    UPDATE @schema@.@table@ AS t SET leader_id = ''
                    WHERE t.service_name = o.name;
                END IF;
            END IF;
            PERFORM set_config('tenure.own', '', true);
        END IF;
        IF v_busy THEN
            SELECT a.term INTO above FROM @schema@.tenure_advisory AS a WHERE a.name = o.name;
            -- A prepared transaction has no pid.
            SELECT coalesce(array_agg(DISTINCT coalesce(l.pid, 0)), '{}') INTO fenced_by
            FROM pg_locks AS l CROSS JOIN (VALUES (@schema@.tenure_fence_key(o.name)),
                (@schema@.tenure_advisory_fence_key(o.key))) AS k (key)
            WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ShareLock'
                AND l.database = (SELECT d.oid FROM pg_database AS d
                    WHERE d.datname = current_database())
                AND l.classid = ((k.key >> 32) & 4294967295)::oid
                AND l.objid = (k.key & 4294967295)::oid;
        ELSIF led_by IS NULL THEN
            v_term := greatest(v_number, r.term + 1, o.least,
                v_lease.term + v_lease.tenure_base + 1);
            UPDATE @schema@.tenure_advisory AS a SET key = o.key, term = v_term,
                pid = pg_backend_pid(), holder = p_candidate, ttl_ms = p_ttl_ms,
                since = clock_timestamp(), metadata = o.metadata::jsonb, leads = true
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
            ARRAY[0], ARRAY[NULL::bigint], 'tenure', 0, 0) AS b;
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
CREATE OR REPLACE FUNCTION @schema@.tenure_advisory_end_fence(p_key bigint) RETURNS integer[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
DECLARE
    v_key bigint := @schema@.tenure_advisory_fence_key(p_key);
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

-- Whether the election of this name is one by an advisory lock at present (P8).
CREATE OR REPLACE FUNCTION @schema@.tenure_is_advisory(p_name text) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $tenure$
BEGIN
    RETURN EXISTS (SELECT FROM @schema@.tenure_advisory AS a WHERE a.name = p_name AND a.leads);
END
$tenure$;

-- The last term of an election, whichever kind of store issued it; null if nobody ever led. The
-- column `term` of the table is a part of it only, once `tenure migrate --terms-above` was used.
CREATE OR REPLACE FUNCTION @schema@.tenure_term(p_name text) RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $tenure$
BEGIN
    RETURN nullif(greatest(
        (SELECT t.term + t.tenure_base FROM @schema@.@table@ AS t WHERE t.service_name = p_name),
        (SELECT a.term FROM @schema@.tenure_advisory AS a WHERE a.name = p_name)), 0);
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
    SELECT a.key INTO v_row FROM @schema@.tenure_advisory AS a WHERE a.name = p_name;
    -- Before the lock of the election is looked at: whoever takes that one sees this one.
    PERFORM pg_advisory_xact_lock_shared(@schema@.tenure_advisory_fence_key(v_row.key));
    SELECT a.term, a.key, a.pid, a.ttl_ms INTO v_row
    FROM @schema@.tenure_advisory AS a WHERE a.name = p_name FOR KEY SHARE;
    IF v_row.term <> p_term THEN
        RAISE EXCEPTION 'term % of % is stale, the latest is %', p_term, p_name, v_row.term
            USING ERRCODE = 'TN001', HINT = 'Roll back and stop: somebody else leads.';
    END IF;
    IF NOT @schema@.tenure_advisory_holds(v_row.pid, v_row.key) THEN
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
        SELECT t.term, t.tenure_base, t.leader_id,
            @schema@.tenure_expires(t.last_heartbeat, t.tenure_ttl_us, NULL) AS expires
        INTO v_row FROM @schema@.@table@ AS t WHERE t.service_name = name FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'nobody ever led %', name USING ERRCODE = 'TN001',
                HINT = 'Roll back.';
        END IF;
        -- Clients of the older design know the column alone.
        IF term NOT IN (v_row.term + v_row.tenure_base, v_row.term) THEN
            RAISE EXCEPTION 'term % of % is stale, the latest is %', term, name,
                v_row.term + v_row.tenure_base
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

-- Forgets an election that nobody leads, of either kind: it is not listed any more, and what was
-- posted to its leader is gone. Its terms stay. A vacant row that is asked to resign, or one
-- without a holder, is a forgotten one; the next grant makes it an ordinary one again.
CREATE OR REPLACE FUNCTION @schema@.tenure_forget(p_name text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
DECLARE
    r @schema@.@table@%ROWTYPE;
    a @schema@.tenure_advisory%ROWTYPE;
    v_known boolean := false;
BEGIN
    PERFORM @schema@.tenure_durably();
    -- Nothing waits here, as nowhere else (P2).
    SELECT t.* INTO a FROM @schema@.tenure_advisory AS t
    WHERE t.name = p_name FOR UPDATE SKIP LOCKED;
    IF NOT FOUND AND EXISTS (SELECT FROM @schema@.tenure_advisory AS t WHERE t.name = p_name) THEN
        RETURN 'busy';
    END IF;
    SELECT t.* INTO r FROM @schema@.@table@ AS t
    WHERE t.service_name = p_name FOR UPDATE SKIP LOCKED;
    IF NOT FOUND AND EXISTS (SELECT FROM @schema@.@table@ AS t WHERE t.service_name = p_name) THEN
        -- Somebody is at it, in a fenced transaction perhaps.
        RETURN 'busy';
    END IF;
    IF r.leader_id <> '' AND clock_timestamp() < @schema@.tenure_expires(
            r.last_heartbeat, r.tenure_ttl_us, NULL)
        OR a.leads AND @schema@.tenure_advisory_holds(a.pid, a.key)
    THEN
        RETURN 'led';
    END IF;
    IF a.term > 0 AND a.holder <> '' THEN
        v_known := true;
        UPDATE @schema@.tenure_advisory AS t SET holder = '', metadata = NULL
        WHERE t.name = p_name;
    END IF;
    IF r.term > 0 AND NOT (r.leader_id = '' AND r.tenure_asked) THEN
        v_known := true;
        PERFORM set_config('tenure.own', 'on', true);
        UPDATE @schema@.@table@ AS t SET leader_id = ''
        WHERE t.service_name = p_name AND t.leader_id <> '';
        UPDATE @schema@.@table@ AS t SET tenure_asked = true WHERE t.service_name = p_name;
        PERFORM set_config('tenure.own', '', true);
    END IF;
    DELETE FROM @schema@.tenure_message AS m WHERE m.election = p_name;
    RETURN CASE WHEN v_known THEN 'forgotten' ELSE 'unknown' END;
END
$tenure$;
