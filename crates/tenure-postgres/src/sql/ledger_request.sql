SELECT @schema@.tenure_cron_request($1, $2)
