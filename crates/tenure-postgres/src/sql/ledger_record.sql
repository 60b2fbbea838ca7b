SELECT place, mark, attempt
FROM @schema@.tenure_ledger_record($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
