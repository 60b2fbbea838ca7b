SELECT channel, waiting, dead, oldest_ms FROM @schema@.tenure_backlog($1)
