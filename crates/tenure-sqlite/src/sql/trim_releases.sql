DELETE FROM released WHERE at_ns < ?1
