DELETE FROM released WHERE election = ?1
