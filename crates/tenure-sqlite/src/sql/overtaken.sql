-- The last acquire of this candidate that a release has overtaken (C2).
SELECT seq FROM released WHERE election = ?1 AND candidate = ?2
