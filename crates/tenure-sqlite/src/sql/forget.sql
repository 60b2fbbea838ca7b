-- Vacant and asked to resign: nobody else leaves a row like this. The term stays (I2).
UPDATE lease
SET holder = NULL, asked = 1, witness = NULL, since_unix_ms = NULL, metadata = NULL
WHERE election = ?1 AND NOT (holder IS NULL AND asked = 1)
