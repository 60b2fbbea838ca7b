SELECT id FROM message WHERE election = ?1 AND channel = ?2 AND key = ?3
