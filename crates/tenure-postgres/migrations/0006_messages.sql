-- Posts: messages that are kept until the leader acknowledges them.
--
-- Numbers order the posts of a channel, so they are given under a lock that lasts until they are
-- committed (M3). `state` is 0 while a post waits, 1 once it is acknowledged, 2 once it is dead. Of
-- an acknowledged one only the key is of use, for as long as it is remembered.
CREATE TABLE IF NOT EXISTS @schema@.tenure_message (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    election text NOT NULL CHECK (octet_length(election) BETWEEN 1 AND 255),
    channel text NOT NULL CHECK (octet_length(channel) BETWEEN 1 AND 63),
    key text NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 255),
    state smallint NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 2),
    deliveries integer NOT NULL DEFAULT 0,
    -- The term that it was last delivered to, and then the one that acknowledged it.
    term bigint,
    posted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    payload text NOT NULL CHECK (octet_length(payload) <= 1048576),
    UNIQUE (election, channel, key)
);
CREATE INDEX IF NOT EXISTS tenure_message_waits
    ON @schema@.tenure_message (election, channel, id) WHERE state = 0;
CREATE INDEX IF NOT EXISTS tenure_message_dead
    ON @schema@.tenure_message (election, channel, id) WHERE state = 2;
CREATE INDEX IF NOT EXISTS tenure_message_ended
    ON @schema@.tenure_message (ended_at) WHERE state = 1;

-- By which lock the posts of one channel take turns.
CREATE OR REPLACE FUNCTION @schema@.tenure_channel_key(p_election text, p_channel text)
RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN pg_catalog.hashtextextended(p_election, 1618033)
    # pg_catalog.hashtextextended(p_channel, 5772156)
    # pg_catalog.hashtextextended(@table_literal@, 6931471);

-- Posts some messages, in their order, all or none. A key that is known is answered with the post
-- that it belongs to. In a transaction of the caller's own the post happens with that transaction;
-- other posts to the same channel wait for its end.
--
-- With p_wake the leader is told when the transaction commits; without, it finds the post when
-- it looks next.
-- Another transaction that has posted to the same channel and is not over within 2 s raises
-- lock_not_available (55P03); a shorter limit of the caller's is kept. The leader is not told
-- through a queue that is filling up, because a full one fails the commit (M2); it looks by itself.
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

-- One message, for those who write SQL by hand: SELECT tenure_post('jobs', 'orders', '{"no": 7}').
CREATE OR REPLACE FUNCTION @schema@.tenure_post(
    election text, channel text, payload text, key text DEFAULT gen_random_uuid()::text
) RETURNS bigint
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $tenure$
    SELECT p.id FROM @schema@.tenure_post_all(
        $1, ARRAY[$2], ARRAY[$3::json::text], ARRAY[$4]) AS p;
$tenure$;

-- The head of a channel, for the leader of this term; no row if there is none. A message that was
-- delivered p_tries times goes to the dead letters instead. Raises TN001 if the term is stale.
CREATE OR REPLACE FUNCTION @schema@.tenure_take(
    p_election text, p_term bigint, p_channel text, p_tries integer
) RETURNS TABLE (id bigint, key text, payload text, delivery integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
#variable_conflict use_column
DECLARE
    m record;
BEGIN
    PERFORM @schema@.tenure_fence(p_election, p_term);
    -- A count that is lost with the server is no harm: the message is delivered once more.
    PERFORM set_config('synchronous_commit', 'off', true);
    LOOP
        SELECT t.id, t.key, t.payload, t.deliveries INTO m FROM @schema@.tenure_message AS t
        WHERE t.election = p_election AND t.channel = p_channel AND t.state = 0
        ORDER BY t.id LIMIT 1 FOR NO KEY UPDATE;
        EXIT WHEN NOT FOUND;
        IF m.deliveries >= p_tries THEN
            UPDATE @schema@.tenure_message AS t SET state = 2, ended_at = clock_timestamp()
            WHERE t.id = m.id;
            CONTINUE;
        END IF;
        UPDATE @schema@.tenure_message AS t SET deliveries = t.deliveries + 1, term = p_term
        WHERE t.id = m.id;
        id := m.id;
        key := m.key;
        payload := m.payload;
        delivery := m.deliveries + 1;
        RETURN NEXT;
        EXIT;
    END LOOP;
END
$tenure$;

-- Takes a message off its channel: true if it was there, false if it was acknowledged before or
-- is dead. Raises TN001 if the term is stale. In a transaction with the effect of the message this
-- makes it take effect exactly once.
CREATE OR REPLACE FUNCTION @schema@.tenure_acknowledge(
    p_election text, p_term bigint, p_channel text, p_id bigint
) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
DECLARE
    v_done boolean;
BEGIN
    PERFORM @schema@.tenure_fence(p_election, p_term);
    PERFORM @schema@.tenure_durably();
    UPDATE @schema@.tenure_message AS t
    SET state = 1, ended_at = clock_timestamp(), term = p_term, payload = ''
    WHERE t.id = p_id AND t.election = p_election AND t.channel = p_channel AND t.state = 0;
    v_done := FOUND;
    -- Keys are remembered for a day after their message was acknowledged.
    DELETE FROM @schema@.tenure_message AS t WHERE t.id IN (
        SELECT o.id FROM @schema@.tenure_message AS o
        WHERE o.state = 1 AND o.ended_at < clock_timestamp() - interval '24 hours'
        ORDER BY o.ended_at LIMIT 10 FOR UPDATE SKIP LOCKED);
    RETURN v_done;
END
$tenure$;

-- What waits and what is dead, by channel.
CREATE OR REPLACE FUNCTION @schema@.tenure_backlog(p_election text)
RETURNS TABLE (channel text, waiting bigint, dead bigint, oldest_ms bigint)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $tenure$
    SELECT m.channel, count(*) FILTER (WHERE m.state = 0), count(*) FILTER (WHERE m.state = 2),
        (extract(epoch FROM clock_timestamp() - min(m.posted_at) FILTER (WHERE m.state = 0))
            * 1000)::bigint
    FROM @schema@.tenure_message AS m
    WHERE m.election = $1 AND m.state IN (0, 2)
    GROUP BY m.channel ORDER BY m.channel COLLATE "C";
$tenure$;

-- Puts dead letters back, at the ends of their channels and with no delivery counted. Returns how
-- many.
CREATE OR REPLACE FUNCTION @schema@.tenure_replay(p_election text, p_id bigint[])
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
DECLARE
    v_key bigint;
    v_id bigint;
    v_count bigint := 0;
BEGIN
    PERFORM @schema@.tenure_durably();
    FOR v_key IN
        SELECT DISTINCT @schema@.tenure_channel_key(p_election, m.channel)
        FROM @schema@.tenure_message AS m
        WHERE m.election = p_election AND m.id = ANY (p_id) AND m.state = 2 ORDER BY 1
    LOOP
        PERFORM pg_advisory_xact_lock(v_key);
    END LOOP;
    FOR v_id IN
        SELECT m.id FROM @schema@.tenure_message AS m
        WHERE m.election = p_election AND m.id = ANY (p_id) AND m.state = 2
        ORDER BY m.id FOR UPDATE
    LOOP
        UPDATE @schema@.tenure_message AS m
        SET id = DEFAULT, state = 0, deliveries = 0, term = NULL, ended_at = NULL
        WHERE m.id = v_id;
        v_count := v_count + 1;
    END LOOP;
    RETURN v_count;
END
$tenure$;

-- A message that somebody acknowledges in a transaction that is not over is waited for, 2 s at
-- most: a call that nobody waits for any more must not stay in the line.
ALTER FUNCTION @schema@.tenure_take(text, bigint, text, integer) SET lock_timeout = '2s';
ALTER FUNCTION @schema@.tenure_acknowledge(text, bigint, text, bigint) SET lock_timeout = '2s';
ALTER FUNCTION @schema@.tenure_replay(text, bigint[]) SET lock_timeout = '2s';
