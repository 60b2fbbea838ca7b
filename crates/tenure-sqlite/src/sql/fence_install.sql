CREATE TABLE IF NOT EXISTS tenure_fence (election TEXT PRIMARY KEY, term INTEGER NOT NULL);
CREATE TRIGGER IF NOT EXISTS tenure_fence_stale BEFORE UPDATE ON tenure_fence
WHEN new.term < old.term
BEGIN
    SELECT RAISE(ABORT, 'tenure: stale term');
END;
