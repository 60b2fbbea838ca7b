-- Every election that somebody ever led, those that were forgotten apart.
SELECT service_name::text FROM @schema@.@table@
WHERE term > 0 AND NOT (leader_id = '' AND tenure_asked) ORDER BY service_name COLLATE "C"
