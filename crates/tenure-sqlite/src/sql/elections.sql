-- Every election that somebody ever led, those that were forgotten apart.
SELECT election FROM lease WHERE NOT (holder IS NULL AND asked = 1) ORDER BY election
