UPDATE lease SET asked = 1 WHERE election = ?1
