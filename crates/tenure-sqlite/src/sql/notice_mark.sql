-- The last notice of each election that is about to be trimmed stays, emptied: whoever has not read
-- so far learns from it that something is gone. No channel has an empty name.
UPDATE notice SET channel = '', payload = ''
WHERE channel <> '' AND id IN (
    SELECT max(id) FROM notice WHERE id <= ?1 OR at_ns < ?2 GROUP BY election
)
