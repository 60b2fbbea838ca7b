SELECT id, key, payload, delivery FROM @schema@.tenure_take($1, $2, $3, $4)
