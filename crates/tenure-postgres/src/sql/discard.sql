DELETE FROM @schema@.tenure_message WHERE election = $1 AND id = ANY ($2) AND state = 2
RETURNING id
