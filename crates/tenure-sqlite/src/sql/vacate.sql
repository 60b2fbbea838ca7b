-- The term stays.
UPDATE lease
SET holder = NULL, asked = 0, witness = NULL, since_unix_ms = NULL, metadata = NULL
WHERE election = ?1
