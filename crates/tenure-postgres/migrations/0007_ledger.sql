-- The cron ledger: one row for each tick that somebody asked for, claimed or skipped (K1). Instants
-- are milliseconds of Unix time. A skipped row stands for `count` ticks, up to `through_ms`.
CREATE TABLE IF NOT EXISTS @schema@.tenure_ledger (
    election text NOT NULL CHECK (octet_length(election) BETWEEN 1 AND 255),
    job text NOT NULL CHECK (octet_length(job) BETWEEN 1 AND 255),
    scheduled_ms bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('requested', 'claimed', 'started', 'retrying', 'ok',
        'failed', 'timed_out', 'abandoned', 'skipped')),
    manual boolean NOT NULL DEFAULT false,
    term bigint,
    attempt integer NOT NULL DEFAULT 0,
    code integer,
    through_ms bigint,
    count bigint,
    claimed_ms bigint,
    started_ms bigint,
    ended_ms bigint,
    PRIMARY KEY (election, job, scheduled_ms)
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS tenure_ledger_time
    ON @schema@.tenure_ledger (election, scheduled_ms);
CREATE INDEX IF NOT EXISTS tenure_ledger_open
    ON @schema@.tenure_ledger (election, scheduled_ms)
    WHERE state IN ('requested', 'claimed', 'started', 'retrying');

-- How far each job has got, and the schedule that it is due by. Trimming does not touch it. People
-- pause a job, since `paused_ms`, or had it count anew from `anew_ms` on.
CREATE TABLE IF NOT EXISTS @schema@.tenure_ledger_job (
    election text NOT NULL,
    job text NOT NULL,
    latest_ms bigint NOT NULL,
    schedule text,
    paused_ms bigint,
    anew_ms bigint,
    PRIMARY KEY (election, job)
) WITH (fillfactor = 40);

-- Work that is done once for a key. One row for each, for ever: a success must stay known. `run`
-- is a number that was drawn for one run, so that a claim whose answer was lost is known again.
CREATE TABLE IF NOT EXISTS @schema@.tenure_once_key (
    election text NOT NULL CHECK (octet_length(election) BETWEEN 1 AND 255),
    key text NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 255),
    state text NOT NULL CHECK (state IN ('running', 'ok', 'failed', 'lost')),
    code integer,
    term bigint NOT NULL,
    attempt integer NOT NULL,
    run bigint NOT NULL,
    claimed_ms bigint,
    ended_ms bigint,
    PRIMARY KEY (election, key)
) WITH (fillfactor = 70);

CREATE OR REPLACE FUNCTION @schema@.tenure_unix_ms(p_at timestamptz) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
RETURN floor(extract(epoch FROM p_at) * 1000)::bigint;

-- The steps of one term, in one call: all of them under its fence, or all of them `stale`. A row
-- that a transaction of the user's is at is skipped, and its step is answered `busy`.
--
-- Each step has the same place in all arrays; steps of one call are about different ticks. They
-- are visited in one order, so that two calls never wait for each other.
CREATE OR REPLACE FUNCTION @schema@.tenure_ledger_record(
    p_election text, p_term bigint, p_verb text[], p_job text[], p_at bigint[],
    p_attempt integer[], p_word text[], p_code integer[], p_through bigint[], p_count bigint[]
) RETURNS TABLE (place bigint, mark text, attempt integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
#variable_conflict use_variable
DECLARE
    v_stale boolean := false;
    v_now bigint;
    s record;
    r record;
    v_there boolean;
    v_ours boolean;
    v_runs boolean;
    v_latest bigint;
    v_new bigint[];
    v_paused text[];
BEGIN
    PERFORM @schema@.tenure_durably();
    BEGIN
        PERFORM @schema@.tenure_fence(p_election, p_term);
    EXCEPTION WHEN SQLSTATE 'TN001' THEN
        v_stale := true;
    END;
    v_now := @schema@.tenure_unix_ms(clock_timestamp());
    -- Claims of ticks that nobody knows yet, nearly all there are, are taken all at once: a
    -- thousand jobs may be due in one second, and each waits for its claim.
    IF NOT v_stale AND 'claim' = ANY (p_verb) THEN
        -- Locked, so that nothing is claimed of a job once the call that pauses it has returned.
        SELECT array_agg(j.job) INTO v_paused FROM (
            SELECT t.job, t.paused_ms FROM @schema@.tenure_ledger_job AS t
            WHERE t.election = p_election AND t.job = ANY (p_job)
            ORDER BY t.job COLLATE "C" FOR NO KEY UPDATE
        ) AS j WHERE j.paused_ms IS NOT NULL;
        WITH claim AS MATERIALIZED (
            SELECT u.job, u.at, u.place FROM unnest(p_verb, p_job, p_at) WITH ORDINALITY
                AS u (verb, job, at, place)
            WHERE u.verb = 'claim' AND u.job <> ALL (coalesce(v_paused, '{}'))
            ORDER BY u.job COLLATE "C", u.at
        ), new AS (
            INSERT INTO @schema@.tenure_ledger AS t
                (election, job, scheduled_ms, state, term, attempt, claimed_ms)
            SELECT p_election, c.job, c.at, 'claimed', p_term, 1, v_now FROM claim AS c
            ON CONFLICT (election, job, scheduled_ms) DO NOTHING
            RETURNING t.job, t.scheduled_ms
        ), noted AS (
            INSERT INTO @schema@.tenure_ledger_job AS j (election, job, latest_ms)
            SELECT p_election, n.job, max(n.scheduled_ms) FROM new AS n
            GROUP BY n.job ORDER BY n.job COLLATE "C"
            ON CONFLICT (election, job)
            DO UPDATE SET latest_ms = greatest(j.latest_ms, excluded.latest_ms)
        )
        SELECT array_agg(c.place) INTO v_new
        FROM new AS n JOIN claim AS c ON c.job = n.job AND c.at = n.scheduled_ms;
        RETURN QUERY SELECT n.place, 'done'::text, 1 FROM unnest(v_new) AS n (place);
    END IF;
    FOR s IN
        SELECT u.* FROM unnest(
            p_verb, p_job, p_at, p_attempt, p_word, p_code, p_through, p_count
        ) WITH ORDINALITY AS u (verb, job, at, attempt, word, code, through, count, place)
        LEFT JOIN unnest(v_new) AS n (place) ON n.place = u.place
        WHERE n.place IS NULL
        ORDER BY u.job COLLATE "C", u.at
    LOOP
        place := s.place;
        attempt := coalesce(s.attempt, 0);
        mark := 'refused';
        v_latest := NULL;
        IF v_stale THEN
            mark := 'stale';
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF s.verb = 'trim' THEN
            DELETE FROM @schema@.tenure_ledger AS t
            WHERE t.election = p_election AND t.job = s.job
                AND t.state NOT IN ('requested', 'claimed', 'started', 'retrying')
                AND t.scheduled_ms <= (
                    SELECT k.scheduled_ms FROM @schema@.tenure_ledger AS k
                    WHERE k.election = p_election AND k.job = s.job
                    ORDER BY k.scheduled_ms DESC OFFSET s.count LIMIT 1);
            mark := 'done';
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF s.verb = 'follow' THEN
            INSERT INTO @schema@.tenure_ledger_job AS j (election, job, latest_ms, schedule)
            VALUES (p_election, s.job, s.at, s.word)
            ON CONFLICT (election, job)
            DO UPDATE SET latest_ms = greatest(j.latest_ms, excluded.latest_ms),
                schedule = excluded.schedule;
            mark := 'done';
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF s.verb = 'skip' THEN
            INSERT INTO @schema@.tenure_ledger AS t
                (election, job, scheduled_ms, state, term, through_ms, count, ended_ms)
            VALUES (p_election, s.job, s.at, 'skipped', p_term, s.through, s.count, v_now)
            ON CONFLICT (election, job, scheduled_ms) DO NOTHING;
            IF FOUND THEN
                mark := 'done';
                v_latest := greatest(s.at, s.through);
            END IF;
        END IF;
        IF mark <> 'done' THEN
            SELECT t.* INTO r FROM @schema@.tenure_ledger AS t
            WHERE t.election = p_election AND t.job = s.job AND t.scheduled_ms = s.at
            FOR NO KEY UPDATE SKIP LOCKED;
            v_there := FOUND;
            v_ours := v_there AND r.term IS NOT DISTINCT FROM p_term;
            v_runs := v_there AND r.state IN ('claimed', 'started');
            IF NOT v_there THEN
                IF EXISTS (SELECT FROM @schema@.tenure_ledger AS t WHERE t.election = p_election
                    AND t.job = s.job AND t.scheduled_ms = s.at)
                THEN
                    mark := 'busy';
                ELSIF s.verb = 'claim' AND s.job = ANY (v_paused) THEN
                    mark := 'paused';
                END IF;
            ELSIF s.verb = 'claim' THEN
                -- Somebody knows the tick, or its job is paused.
                IF r.state = 'claimed' AND v_ours THEN
                    mark := 'done';
                    attempt := r.attempt;
                ELSIF NOT (r.state IN ('requested', 'retrying')
                    OR v_runs AND NOT v_ours AND coalesce(s.word = 'again', false))
                THEN
                    mark := 'refused';
                ELSIF NOT r.manual AND s.job = ANY (v_paused) THEN
                    mark := 'paused';
                ELSE
                    mark := 'done';
                    attempt := r.attempt + 1;
                    UPDATE @schema@.tenure_ledger AS t SET state = 'claimed', term = p_term,
                        attempt = r.attempt + 1, claimed_ms = v_now, started_ms = NULL,
                        ended_ms = NULL, code = NULL
                    WHERE t.election = p_election AND t.job = s.job AND t.scheduled_ms = s.at;
                    IF NOT r.manual THEN
                        v_latest := s.at;
                    END IF;
                END IF;
            ELSIF s.verb = 'start' THEN
                IF v_runs AND v_ours AND r.attempt = s.attempt THEN
                    mark := 'done';
                    UPDATE @schema@.tenure_ledger AS t SET state = 'started', started_ms = v_now
                    WHERE t.election = p_election AND t.job = s.job AND t.scheduled_ms = s.at;
                END IF;
            ELSIF s.verb = 'end' THEN
                IF v_ours AND r.attempt = s.attempt AND r.state = s.word THEN
                    mark := 'done';
                ELSIF v_runs AND v_ours AND r.attempt = s.attempt THEN
                    mark := 'done';
                    UPDATE @schema@.tenure_ledger AS t
                    SET state = s.word, code = s.code, ended_ms = v_now
                    WHERE t.election = p_election AND t.job = s.job AND t.scheduled_ms = s.at;
                END IF;
            ELSIF s.verb = 'retry' THEN
                IF v_ours AND r.attempt = s.attempt AND r.state = 'retrying' THEN
                    mark := 'done';
                ELSIF v_runs AND v_ours AND r.attempt = s.attempt THEN
                    mark := 'done';
                    UPDATE @schema@.tenure_ledger AS t
                    SET state = 'retrying', code = s.code, ended_ms = v_now
                    WHERE t.election = p_election AND t.job = s.job AND t.scheduled_ms = s.at;
                END IF;
            ELSIF s.verb = 'confirm' THEN
                IF r.state = 'ok' AND r.attempt = s.attempt THEN
                    mark := 'done';
                END IF;
            ELSIF s.verb = 'skip' THEN
                IF r.state = 'skipped' THEN
                    mark := 'done';
                END IF;
            ELSIF s.verb = 'abandon' THEN
                attempt := r.attempt;
                IF r.state = 'abandoned' THEN
                    mark := 'done';
                ELSIF r.state IN ('requested', 'retrying') OR v_runs AND NOT v_ours THEN
                    mark := 'done';
                    UPDATE @schema@.tenure_ledger AS t SET state = 'abandoned', ended_ms = v_now
                    WHERE t.election = p_election AND t.job = s.job AND t.scheduled_ms = s.at;
                END IF;
            END IF;
        END IF;
        IF v_latest IS NOT NULL THEN
            INSERT INTO @schema@.tenure_ledger_job AS j (election, job, latest_ms)
            VALUES (p_election, s.job, v_latest)
            ON CONFLICT (election, job)
            DO UPDATE SET latest_ms = greatest(j.latest_ms, excluded.latest_ms);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$tenure$;

-- Asks for a job to run now; returns the instant that names the tick. Never at a whole second: a
-- schedule has those.
CREATE OR REPLACE FUNCTION @schema@.tenure_cron_request(p_election text, p_job text)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
DECLARE
    v_at bigint := @schema@.tenure_unix_ms(clock_timestamp());
BEGIN
    PERFORM @schema@.tenure_durably();
    LOOP
        IF v_at % 1000 = 0 THEN
            v_at := v_at + 1;
        END IF;
        INSERT INTO @schema@.tenure_ledger (election, job, scheduled_ms, state, manual)
        VALUES (p_election, p_job, v_at, 'requested', true)
        ON CONFLICT (election, job, scheduled_ms) DO NOTHING;
        IF FOUND THEN
            RETURN v_at;
        END IF;
        v_at := v_at + 1;
    END LOOP;
END
$tenure$;

-- What becomes of a job from now on: `pause`, `resume` or `from_now`. Returns whether it is known.
-- Only a clock that was ahead has got further than `p_ahead_ms` from now.
CREATE OR REPLACE FUNCTION @schema@.tenure_cron_steer(
    p_election text, p_job text, p_verb text, p_ahead_ms bigint
) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
DECLARE
    v_now bigint := @schema@.tenure_unix_ms(clock_timestamp());
    v_known boolean;
BEGIN
    PERFORM @schema@.tenure_durably();
    UPDATE @schema@.tenure_ledger_job AS j SET
        latest_ms = CASE
            WHEN p_verb = 'from_now' AND j.latest_ms > v_now + p_ahead_ms THEN v_now
            WHEN p_verb = 'resume' AND j.paused_ms IS NOT NULL THEN greatest(j.latest_ms, v_now)
            ELSE j.latest_ms END,
        anew_ms = CASE WHEN p_verb = 'from_now' AND j.latest_ms > v_now + p_ahead_ms THEN v_now
            ELSE j.anew_ms END,
        paused_ms = CASE p_verb WHEN 'pause' THEN coalesce(j.paused_ms, v_now)
            WHEN 'resume' THEN NULL ELSE j.paused_ms END
    WHERE j.election = p_election AND j.job = p_job;
    v_known := FOUND;
    IF p_verb = 'from_now' AND v_known THEN
        -- What a clock that was ahead has left behind.
        DELETE FROM @schema@.tenure_ledger AS t
        WHERE t.election = p_election AND t.job = p_job AND t.scheduled_ms > v_now + p_ahead_ms
            AND t.state NOT IN ('requested', 'claimed', 'started', 'retrying');
    END IF;
    RETURN v_known;
END
$tenure$;

-- For a job of delivery `transactional`: first in its transaction, then its effect. The tick ends
-- well with the transaction, or is still open without it: the effect is there exactly once (K2).
-- It fences the transaction, as tenure_fence does, and raises TN001 if this attempt is not the one
-- that leads.
CREATE OR REPLACE FUNCTION @schema@.tenure_tick(
    election text, term bigint, job text, scheduled_at timestamptz, attempt integer
) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
#variable_conflict use_variable
DECLARE
    v_state text;
    v_at bigint := @schema@.tenure_unix_ms(scheduled_at);
BEGIN
    PERFORM @schema@.tenure_durably();
    PERFORM @schema@.tenure_fence(election, term);
    UPDATE @schema@.tenure_ledger AS t
    SET state = 'ok', ended_ms = @schema@.tenure_unix_ms(clock_timestamp())
    WHERE t.election = election AND t.job = job AND t.scheduled_ms = v_at AND t.term = term
        AND t.attempt = attempt AND t.state = 'started';
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT t.state INTO v_state FROM @schema@.tenure_ledger AS t
    WHERE t.election = election AND t.job = job AND t.scheduled_ms = v_at;
    RAISE EXCEPTION 'attempt % of the tick % of % is not the one that runs (it is %)', attempt,
        scheduled_at, job, coalesce(v_state, 'not known')
        USING ERRCODE = 'TN001', HINT = 'Roll back: it took effect before, or is somebody else''s.';
END
$tenure$;

-- One step about a key, under the fence of its term. A row that a transaction of the user's is at
-- is left alone, and the step is answered `busy`.
CREATE OR REPLACE FUNCTION @schema@.tenure_once_step(
    p_election text, p_term bigint, p_verb text, p_key text, p_run bigint, p_tries integer,
    p_attempt integer, p_word text, p_code integer
) RETURNS TABLE (mark text, attempt integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
#variable_conflict use_variable
DECLARE
    v_now bigint;
    r record;
BEGIN
    PERFORM @schema@.tenure_durably();
    attempt := 0;
    BEGIN
        PERFORM @schema@.tenure_fence(p_election, p_term);
    EXCEPTION WHEN SQLSTATE 'TN001' THEN
        mark := 'stale';
        RETURN NEXT;
        RETURN;
    END;
    v_now := @schema@.tenure_unix_ms(clock_timestamp());
    IF p_verb = 'claim' THEN
        INSERT INTO @schema@.tenure_once_key AS t
            (election, key, state, term, attempt, run, claimed_ms)
        VALUES (p_election, p_key, 'running', p_term, 1, p_run, v_now)
        ON CONFLICT (election, key) DO NOTHING;
        IF FOUND THEN
            mark := 'done';
            attempt := 1;
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    SELECT t.* INTO r FROM @schema@.tenure_once_key AS t
    WHERE t.election = p_election AND t.key = p_key
    FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        mark := 'refused';
        IF EXISTS (SELECT FROM @schema@.tenure_once_key AS t
            WHERE t.election = p_election AND t.key = p_key)
        THEN
            mark := 'busy';
        END IF;
        RETURN NEXT;
        RETURN;
    END IF;
    attempt := r.attempt;
    IF p_verb = 'claim' THEN
        IF r.state = 'ok' THEN
            mark := 'already';
        ELSIF r.state = 'running' AND r.term = p_term THEN
            mark := CASE WHEN r.run = p_run THEN 'done' ELSE 'running' END;
        ELSIF r.attempt >= p_tries THEN
            mark := 'spent';
            -- It died, and nobody may try it again.
            UPDATE @schema@.tenure_once_key AS t SET state = 'lost', ended_ms = v_now
            WHERE t.election = p_election AND t.key = p_key AND t.state = 'running';
        ELSE
            mark := 'done';
            attempt := r.attempt + 1;
            UPDATE @schema@.tenure_once_key AS t SET state = 'running', code = NULL,
                term = p_term, attempt = r.attempt + 1, run = p_run, claimed_ms = v_now,
                ended_ms = NULL
            WHERE t.election = p_election AND t.key = p_key;
        END IF;
    ELSIF r.term <> p_term OR r.attempt <> p_attempt THEN
        mark := 'refused';
    ELSIF r.state = 'running' THEN
        mark := 'done';
        UPDATE @schema@.tenure_once_key AS t
        SET state = p_word, code = p_code, ended_ms = v_now
        WHERE t.election = p_election AND t.key = p_key;
    ELSE
        mark := CASE WHEN r.state = p_word AND r.code IS NOT DISTINCT FROM p_code THEN 'done'
            ELSE 'refused' END;
    END IF;
    RETURN NEXT;
END
$tenure$;

-- For work that is done once for a key, and whose effect is in this database: first in its
-- transaction, then the effect. The success is recorded with the transaction, or neither is there:
-- the effect is there exactly once. It fences the transaction, as tenure_fence does, and raises
-- TN001 if this attempt is not the one that runs.
CREATE OR REPLACE FUNCTION @schema@.tenure_once(
    election text, term bigint, key text, attempt integer
) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
#variable_conflict use_variable
DECLARE
    v_state text;
BEGIN
    PERFORM @schema@.tenure_durably();
    PERFORM @schema@.tenure_fence(election, term);
    UPDATE @schema@.tenure_once_key AS t
    SET state = 'ok', ended_ms = @schema@.tenure_unix_ms(clock_timestamp())
    WHERE t.election = election AND t.key = key AND t.term = term AND t.attempt = attempt
        AND t.state = 'running';
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT t.state INTO v_state FROM @schema@.tenure_once_key AS t
    WHERE t.election = election AND t.key = key;
    RAISE EXCEPTION 'attempt % for the key % is not the one that runs (it is %)', attempt, key,
        coalesce(v_state, 'not known')
        USING ERRCODE = 'TN001', HINT = 'Roll back: it took effect before, or is somebody else''s.';
END
$tenure$;
