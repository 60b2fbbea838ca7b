-- Its terms too: only for an election that nobody will ever take part in again.
DELETE FROM lease WHERE election = ?1
