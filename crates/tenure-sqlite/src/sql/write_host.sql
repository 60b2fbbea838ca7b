INSERT OR REPLACE INTO host (one, boot_id, time_ns) VALUES (1, ?1, ?2)
