SELECT mark, attempt
FROM @schema@.tenure_once_step($1, $2, $3, $4, $5, $6, $7, $8, $9)
