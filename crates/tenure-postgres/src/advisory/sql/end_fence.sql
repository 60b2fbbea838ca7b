SELECT @schema@.tenure_advisory_end_fence($1)
