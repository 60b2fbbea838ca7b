-- All that is old, but for those marks, which are gone once they are older than ?3.
DELETE FROM notice WHERE (id <= ?1 OR at_ns < ?2) AND (at_ns < ?3 OR id NOT IN (
    SELECT max(id) FROM notice WHERE id <= ?1 OR at_ns < ?2 GROUP BY election
))
