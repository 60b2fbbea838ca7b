-- One batch of tenure's ops in one call, and so in one round trip and one transaction.
--
-- Nothing waits in here (P1, P2): a row that others are at is skipped, and the outcome of its op
-- is unknown (`busy`). Rows are visited in the order of names, each by its key alone, so that the
-- time of a batch grows with its size and with nothing else. The clock is read when a row is
-- locked.
--
-- Each op has the same place in all arrays; ops of one batch are about different elections.
-- p_verb is one of acquire, renew, release, read, ask. p_term is the term that a renew, a release
-- or an ask names, and the last one led of an acquire.

CREATE OR REPLACE FUNCTION @schema@.tenure_apply(
    p_verb text[], p_name text[], p_candidate text[], p_seq bigint[], p_term bigint[],
    p_floor bigint[], p_ttl_us bigint[], p_metadata text[]
) RETURNS TABLE (
    place bigint, outcome text, clock_us bigint, term bigint, asked boolean, expired_us bigint,
    holder text, remaining_us bigint, ttl_us bigint, since_ms bigint, metadata text,
    fenced_us bigint, fenced_by integer[], led_by text
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
-- All rows are found by their key, whatever is asked: plans are made once.
SET plan_cache_mode = force_generic_plan
-- Only for names that others are inserting at this very instant.
SET lock_timeout = '50ms'
AS $tenure$
#variable_conflict use_column
DECLARE
    o record;
    r @schema@.@table@%ROWTYPE;
    v_new text[];
    v_name text;
    v_now timestamptz;
    v_expires timestamptz;
    v_held boolean;
    v_heal boolean;
    v_healed boolean;
    v_term bigint;
    v_least bigint;
    v_column bigint;
    v_base bigint;
    v_other record;
    v_away boolean;
    v_sweep boolean := false;
BEGIN
    -- An older snapshot would not see what others did before a row was locked.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'transactions are % here', current_setting('transaction_isolation')
            USING ERRCODE = 'TN004';
    END IF;
    IF p_verb && ARRAY['acquire', 'renew'] THEN
        -- As tenure_durably does, without the time that a call takes.
        IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
            PERFORM set_config('synchronous_commit', 'on', true);
        END IF;
    ELSE
        -- A release or an ask that a crash undoes costs time and nothing else: the lease runs out.
        -- Nobody waits for the disk, because a grant that follows from it does (P2).
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    PERFORM set_config('tenure.own', 'on', true);

    -- Every acquire and release finds a row, which is what they meet at (P1, C2). OFFSET keeps each
    -- name a look of its own by the key, whatever the planner takes the table for.
    v_new := ARRAY(
        SELECT u.name FROM unnest(p_verb, p_name) AS u (verb, name)
        WHERE u.verb IN ('acquire', 'release') AND NOT EXISTS (
            SELECT FROM @schema@.@table@ AS t WHERE t.service_name = u.name OFFSET 0)
        ORDER BY u.name COLLATE "C");
    IF v_new <> '{}' THEN
        BEGIN
            INSERT INTO @schema@.@table@ (service_name, leader_id, term)
            SELECT n, '', 0 FROM unnest(v_new) AS n ON CONFLICT (service_name) DO NOTHING;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            -- Another transaction has inserted one of them and is not over. The rest is served.
            PERFORM set_config('lock_timeout', '1ms', true);
            FOREACH v_name IN ARRAY v_new LOOP
                BEGIN
                    INSERT INTO @schema@.@table@ (service_name, leader_id, term)
                    VALUES (v_name, '', 0) ON CONFLICT (service_name) DO NOTHING;
                EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
                    NULL;
                END;
            END LOOP;
        END;
    END IF;

    FOR o IN
        SELECT u.* FROM unnest(
            p_verb, p_name, p_candidate, p_seq, p_term, p_floor, p_ttl_us, p_metadata
        ) WITH ORDINALITY AS u (
            verb, name, candidate, seq, term, floor, ttl_us, metadata, place
        ) ORDER BY u.name COLLATE "C"
    LOOP
        expired_us := NULL;
        fenced_us := NULL;
        fenced_by := NULL;
        led_by := NULL;
        v_away := false;
        IF o.verb = 'acquire' THEN
            -- Looked at before it is locked: who only asks holds up nobody.
            SELECT t.* INTO r FROM @schema@.@table@ AS t WHERE t.service_name = o.name;
            v_now := clock_timestamp();
            v_expires := @schema@.tenure_expires(r.last_heartbeat, r.tenure_ttl_us, o.ttl_us);
            v_held := r.leader_id <> '' AND v_now < v_expires;
            IF r.service_name IS NULL THEN
                outcome := 'busy';
            ELSIF v_held AND r.leader_id <> o.candidate THEN
                outcome := 'refused';
            ELSE
                -- The same term again (C1) is no change of hands, and passes under a fence.
                v_heal := v_held AND (o.term IS NULL OR r.term + r.tenure_base > o.term);
                IF v_heal THEN
                    SELECT t.* INTO r FROM @schema@.@table@ AS t
                    WHERE t.service_name = o.name FOR NO KEY UPDATE SKIP LOCKED;
                ELSE
                    SELECT t.* INTO r FROM @schema@.@table@ AS t
                    WHERE t.service_name = o.name FOR UPDATE SKIP LOCKED;
                END IF;
                v_now := clock_timestamp();
                v_expires := @schema@.tenure_expires(
                    r.last_heartbeat, r.tenure_ttl_us, o.ttl_us);
                v_held := r.leader_id <> '' AND v_now < v_expires;
                v_healed := v_held AND r.leader_id = o.candidate
                    AND (o.term IS NULL OR r.term + r.tenure_base > o.term);
                IF NOT FOUND THEN
                    outcome := 'busy';
                ELSIF v_held AND r.leader_id <> o.candidate OR EXISTS (
                    SELECT FROM @schema@.@released@ AS d WHERE d.service_name = o.name
                        AND d.candidate_id = o.candidate AND d.seq >= o.seq)
                THEN
                    outcome := 'refused';
                ELSIF v_healed THEN
                    UPDATE @schema@.@table@ AS t SET last_heartbeat = v_now,
                        tenure_ttl_us = o.ttl_us, tenure_seq = greatest(t.tenure_seq, o.seq)
                    WHERE t.service_name = o.name RETURNING t.* INTO r;
                    outcome := 'granted';
                ELSIF v_heal THEN
                    -- It ran out in between, and this lock is not enough for a new term.
                    outcome := 'busy';
                ELSE
                    SELECT l.* INTO v_other FROM @schema@.tenure_leave_advisory(o.name) AS l;
                    v_least := coalesce(v_least, @schema@.tenure_least());
                    v_term := greatest(r.term + r.tenure_base + 1, o.floor, o.term + 1, v_least,
                        v_other.term + 1);
                    -- Far ahead is a matter of the base, so that the column has room left.
                    v_column := v_term - r.tenure_base;
                    IF v_column > 1073741823 THEN
                        v_column := r.term + 1::bigint;
                    END IF;
                    v_base := @schema@.tenure_base_for(v_column, r.tenure_base, v_term);
                    v_away := v_other.state <> 'free';
                    IF v_away THEN
                        -- It is one by an advisory lock, and that one is led or fenced (P8).
                        outcome := CASE v_other.state WHEN 'held' THEN 'elsewhere' ELSE 'busy' END;
                        led_by := v_other.holder;
                    ELSIF v_column > 2147483647 OR v_column + v_base > 9007199254740991 THEN
                        outcome := 'used up';
                    ELSE
                        IF r.leader_id <> '' AND NOT v_held THEN
                            expired_us := coalesce(
                                r.tenure_ttl_us, greatest(90000000, o.ttl_us));
                        END IF;
                        UPDATE @schema@.@table@ AS t SET leader_id = o.candidate,
                            term = v_column, tenure_base = v_base, last_heartbeat = v_now,
                            metadata = o.metadata::jsonb,
                            tenure_ttl_us = o.ttl_us, tenure_seq = o.seq, tenure_asked = false,
                            tenure_since = v_now
                        WHERE t.service_name = o.name RETURNING t.* INTO r;
                        outcome := 'granted';
                    END IF;
                END IF;
            END IF;
            IF outcome = 'busy' AND NOT v_away THEN
                SELECT t.* INTO r FROM @schema@.@table@ AS t WHERE t.service_name = o.name;
                fenced_us := extract(epoch FROM v_now - CASE WHEN r.leader_id = '' THEN
                    r.last_heartbeat ELSE @schema@.tenure_expires(r.last_heartbeat,
                    r.tenure_ttl_us, o.ttl_us) END) * 1000000;
                -- Who fences a lease that nobody holds (P3). A prepared transaction has no pid. At
                -- first it is only another candidate, and looking would slow that one down.
                IF fenced_us > 100000 THEN
                    SELECT array_agg(coalesce(l.pid, 0)) INTO fenced_by FROM pg_locks AS l
                    CROSS JOIN @schema@.tenure_fence_key(o.name) AS k (key)
                    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ShareLock'
                        AND l.database = (SELECT d.oid FROM pg_database AS d
                            WHERE d.datname = current_database())
                        AND l.classid = ((k.key >> 32) & 4294967295)::oid
                        AND l.objid = (k.key & 4294967295)::oid;
                END IF;
            END IF;

        ELSIF o.verb = 'renew' THEN
            SELECT t.* INTO r FROM @schema@.@table@ AS t
            WHERE t.service_name = o.name AND t.leader_id = o.candidate
                AND t.term + t.tenure_base = o.term
            FOR NO KEY UPDATE SKIP LOCKED;
            v_now := clock_timestamp();
            IF FOUND AND v_now < @schema@.tenure_expires(
                r.last_heartbeat, r.tenure_ttl_us, NULL)
            THEN
                UPDATE @schema@.@table@ AS t SET last_heartbeat = v_now,
                    tenure_ttl_us = o.ttl_us
                WHERE t.service_name = o.name;
                v_sweep := true;
                outcome := 'granted';
            ELSE
                SELECT t.* INTO r FROM @schema@.@table@ AS t WHERE t.service_name = o.name;
                outcome := CASE WHEN r.leader_id = o.candidate
                    AND r.term + r.tenure_base = o.term
                    AND v_now < @schema@.tenure_expires(r.last_heartbeat, r.tenure_ttl_us, NULL)
                    THEN 'busy' ELSE 'refused' END;
            END IF;

        ELSIF o.verb = 'release' THEN
            SELECT t.* INTO r FROM @schema@.@table@ AS t
            WHERE t.service_name = o.name FOR NO KEY UPDATE SKIP LOCKED;
            v_now := clock_timestamp();
            IF NOT FOUND THEN
                outcome := 'busy';
            ELSE
                INSERT INTO @schema@.@released@ AS d (service_name, candidate_id, seq, at)
                VALUES (o.name, o.candidate, o.seq, v_now)
                ON CONFLICT (service_name, candidate_id)
                DO UPDATE SET seq = greatest(d.seq, excluded.seq), at = excluded.at;
                v_sweep := true;
                outcome := 'refused';
                IF r.leader_id = o.candidate
                    AND (o.term IS NULL AND r.tenure_seq <= o.seq
                        OR r.term + r.tenure_base = o.term)
                    AND v_now < @schema@.tenure_expires(r.last_heartbeat, r.tenure_ttl_us, NULL)
                THEN
                    UPDATE @schema@.@table@ AS t SET leader_id = ''
                    WHERE t.service_name = o.name RETURNING t.* INTO r;
                    outcome := 'granted';
                END IF;
            END IF;

        ELSIF o.verb = 'ask' THEN
            SELECT t.* INTO r FROM @schema@.@table@ AS t
            WHERE t.service_name = o.name AND t.leader_id <> ''
                AND (o.term IS NULL OR t.term + t.tenure_base = o.term)
            FOR NO KEY UPDATE SKIP LOCKED;
            v_now := clock_timestamp();
            IF FOUND AND v_now < @schema@.tenure_expires(
                r.last_heartbeat, r.tenure_ttl_us, NULL)
            THEN
                UPDATE @schema@.@table@ AS t SET tenure_asked = true
                WHERE t.service_name = o.name;
                outcome := 'granted';
            ELSE
                SELECT t.* INTO r FROM @schema@.@table@ AS t WHERE t.service_name = o.name;
                outcome := CASE WHEN r.leader_id <> ''
                    AND (o.term IS NULL OR r.term + r.tenure_base = o.term)
                    AND v_now < @schema@.tenure_expires(r.last_heartbeat, r.tenure_ttl_us, NULL)
                    THEN 'busy' ELSE 'refused' END;
            END IF;

        ELSE
            SELECT t.* INTO r FROM @schema@.@table@ AS t WHERE t.service_name = o.name;
            v_now := clock_timestamp();
            outcome := 'seen';
        END IF;

        IF outcome = 'busy' AND NOT v_away AND fenced_by IS NULL AND v_now - r.last_heartbeat
            > greatest(r.tenure_ttl_us * 0.4, 100000) * interval '1 microsecond'
        THEN
            -- Not one that is done in a moment: somebody has locked the row and left it so. The
            -- row knows the last transaction that did, and the table who else is at it.
            SELECT string_agg(l.pid::text, ', ') INTO led_by FROM pg_locks AS l
            WHERE l.locktype = 'transactionid' AND l.granted AND l.transactionid = (
                SELECT t.xmax FROM @schema@.@table@ AS t WHERE t.service_name = o.name)
                AND EXISTS (SELECT FROM pg_locks AS m WHERE m.pid = l.pid
                    AND m.relation = @table_literal@::regclass AND m.mode <> 'AccessShareLock');
        END IF;

        place := o.place;
        clock_us := extract(epoch FROM v_now) * 1000000;
        term := r.term + r.tenure_base;
        asked := r.tenure_asked;
        holder := NULL;
        IF outcome <> 'granted' THEN
            -- What stands there instead.
            v_expires := @schema@.tenure_expires(r.last_heartbeat, r.tenure_ttl_us, o.ttl_us);
            IF r.leader_id <> '' AND v_now < v_expires THEN
                holder := r.leader_id;
                -- Never more than the whole, also if the clock was set back.
                remaining_us := least(extract(epoch FROM v_expires - v_now) * 1000000,
                    coalesce(r.tenure_ttl_us, greatest(90000000, o.ttl_us)));
                ttl_us := r.tenure_ttl_us;
                since_ms := floor(extract(epoch FROM r.tenure_since) * 1000);
                metadata := r.metadata;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;

    IF v_sweep AND random() < 0.02 THEN
        -- Now and then, so that a hand-over seldom waits for it; a release leaves one behind and
        -- takes twenty away on average. Twice as long as it must be: the clock may step.
        DELETE FROM @schema@.@released@ AS d USING (
            SELECT old.service_name, old.candidate_id FROM @schema@.@released@ AS old
            WHERE old.at < v_now - interval '20 minutes' LIMIT 1000 FOR UPDATE SKIP LOCKED
        ) AS old
        WHERE d.service_name = old.service_name AND d.candidate_id = old.candidate_id;
    END IF;
    PERFORM set_config('tenure.own', '', true);
END
$tenure$;

-- Does all of this once, for an election of its own, and undoes it. What a session plans for its
-- first grant and its first release takes longer than they do, and a hand-over waits for both.
CREATE OR REPLACE FUNCTION @schema@.tenure_warm_up() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
DECLARE
    v_name text := 'tenure warm-up ' || pg_backend_pid();
    v_verb text;
BEGIN
    BEGIN
        FOREACH v_verb IN ARRAY ARRAY['acquire', 'renew', 'release', 'acquire', 'read'] LOOP
            PERFORM FROM @schema@.tenure_apply(ARRAY[v_verb], ARRAY[v_name], ARRAY['tenure'],
                ARRAY[CASE WHEN v_verb = 'release' THEN 0 ELSE 1 END], ARRAY[
                    CASE WHEN v_verb IN ('renew', 'release') THEN 1 END],
                ARRAY[NULL::bigint], ARRAY[1000000], ARRAY['{}']);
        END LOOP;
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
