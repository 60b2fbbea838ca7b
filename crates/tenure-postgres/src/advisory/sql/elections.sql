-- Every election that left a term here, those that were forgotten apart.
SELECT name FROM @schema@.tenure_advisory WHERE term > 0 AND holder <> '' ORDER BY name COLLATE "C"
