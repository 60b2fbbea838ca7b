SELECT @schema@.tenure_end_fence($1, $2)
