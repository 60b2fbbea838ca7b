SELECT @schema@.tenure_cron_steer($1, $2, $3, $4)
