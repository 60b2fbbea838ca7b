-- After a reboot nobody is left who could hold a lease or send a late acquire (S1). Terms stay.
UPDATE lease
SET holder = NULL, asked = 0, witness = NULL, since_unix_ms = NULL, metadata = NULL
WHERE holder IS NOT NULL;
DELETE FROM released;
DELETE FROM witness;
DELETE FROM notice;
