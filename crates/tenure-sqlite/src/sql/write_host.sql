INSERT OR REPLACE INTO host (one, boot_id, boot_is_kernels, time_ns) VALUES (1, ?1, ?2, ?3)
