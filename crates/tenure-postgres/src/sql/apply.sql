SELECT place, outcome, clock_us, term, asked, expired_us, holder, remaining_us, ttl_us, since_ms,
    metadata, fenced_us, fenced_by, led_by
FROM @schema@.tenure_apply($1, $2, $3, $4, $5, $6, $7, $8)
