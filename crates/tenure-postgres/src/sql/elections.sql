-- Every election that somebody ever led.
SELECT service_name::text FROM @schema@.@table@ WHERE term > 0 ORDER BY service_name COLLATE "C"
