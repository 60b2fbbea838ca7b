SELECT place, id, is_new FROM @schema@.tenure_post_all($1, $2, $3, $4, false)
