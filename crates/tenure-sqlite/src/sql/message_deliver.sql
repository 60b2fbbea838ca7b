UPDATE message SET deliveries = deliveries + 1, term = ?2 WHERE id = ?1
