-- The number of the last notice, be it trimmed or not.
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'notice'
