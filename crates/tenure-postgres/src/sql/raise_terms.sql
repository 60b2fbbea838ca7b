SELECT @schema@.tenure_raise_terms($1)
