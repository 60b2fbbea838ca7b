-- A term where the tables are: the same number, and a row for each election.
SELECT place, term, above, fenced_by, clock_us, led_by
FROM @schema@.tenure_advisory_begin($1, $2, $3, $4, $5, $6, $7, $8, $9)
