DELETE FROM notice WHERE id <= ?1 OR at_ns < ?2
