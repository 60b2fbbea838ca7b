-- After a reboot nobody is left who could hold a lease of an earlier boot (S1). Terms stay. An odd
-- number is a boot id of the kernel's own; of those that are not, nobody knows (S2).
UPDATE lease
SET holder = NULL, asked = 0, witness = NULL, since_unix_ms = NULL, metadata = NULL
WHERE holder IS NOT NULL AND boot <> ?1 AND boot & 1
