DELETE FROM message WHERE election = ?1
