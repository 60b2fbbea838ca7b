-- Posts: kept until the leader acknowledges them. `id` is never used twice and orders the posts of
-- a channel. `state` is 0 while it waits, 1 once it is acknowledged, 2 once it is dead. Of an
-- acknowledged one only the key is of use, for as long as it is remembered.
CREATE TABLE message (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    election TEXT NOT NULL,
    channel TEXT NOT NULL,
    key TEXT NOT NULL,
    state INTEGER NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 2),
    deliveries INTEGER NOT NULL DEFAULT 0,
    -- The term that it was last delivered to, and then the one that acknowledged it.
    term INTEGER,
    posted_unix_ms INTEGER NOT NULL,
    ended_unix_ms INTEGER,
    payload TEXT NOT NULL,
    UNIQUE (election, channel, key)
) STRICT;
CREATE INDEX message_waits ON message (election, channel, id) WHERE state = 0;
CREATE INDEX message_dead ON message (election, channel, id) WHERE state = 2;
CREATE INDEX message_ended ON message (ended_unix_ms) WHERE state = 1;

-- Notices: for whoever leads at this moment. Kept for a minute, by CLOCK_BOOTTIME.
CREATE TABLE notice (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    election TEXT NOT NULL,
    channel TEXT NOT NULL,
    at_ns INTEGER NOT NULL,
    payload TEXT NOT NULL
) STRICT;
CREATE INDEX notice_of ON notice (election, id);
