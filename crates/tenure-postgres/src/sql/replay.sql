SELECT @schema@.tenure_replay($1, $2)
