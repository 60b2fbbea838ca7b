SELECT @schema@.tenure_acknowledge($1, $2, $3, $4)
