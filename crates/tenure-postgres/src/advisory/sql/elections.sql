-- Every election that left a term here.
SELECT name FROM @schema@.tenure_advisory WHERE term > 0 ORDER BY name COLLATE "C"
