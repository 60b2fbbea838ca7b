-- The older design as people have it: the table, and functions with all their faults. The tests of
-- the packages for Python and Node read it from here, too.
CREATE TABLE IF NOT EXISTS leader_election (
    service_name varchar(255) PRIMARY KEY,
    leader_id varchar(255) NOT NULL,
    term integer NOT NULL DEFAULT 1,
    last_heartbeat timestamptz NOT NULL DEFAULT now(),
    metadata jsonb DEFAULT '{}'
);

CREATE OR REPLACE FUNCTION try_become_leader(
    p_service_name varchar, p_candidate_id varchar, p_timeout_seconds integer DEFAULT 30
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_row leader_election%ROWTYPE;
BEGIN
    SELECT * INTO v_row FROM leader_election WHERE service_name = p_service_name FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO leader_election (service_name, leader_id, term, last_heartbeat)
        VALUES (p_service_name, p_candidate_id, 1, now());
        RETURN true;
    END IF;
    IF v_row.leader_id = p_candidate_id THEN
        UPDATE leader_election SET last_heartbeat = now() WHERE service_name = p_service_name;
        RETURN true;
    END IF;
    IF v_row.last_heartbeat < now() - p_timeout_seconds * interval '1 second' THEN
        UPDATE leader_election
        SET leader_id = p_candidate_id, term = term + 1, last_heartbeat = now()
        WHERE service_name = p_service_name;
        RETURN true;
    END IF;
    RETURN false;
END $$;

CREATE OR REPLACE FUNCTION leader_heartbeat(
    p_service_name varchar, p_leader_id varchar
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE leader_election SET last_heartbeat = now()
    WHERE service_name = p_service_name AND leader_id = p_leader_id;
    RETURN FOUND;
END $$;

CREATE OR REPLACE FUNCTION step_down(
    p_service_name varchar, p_leader_id varchar
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM leader_election
    WHERE service_name = p_service_name AND leader_id = p_leader_id;
    RETURN FOUND;
END $$;
