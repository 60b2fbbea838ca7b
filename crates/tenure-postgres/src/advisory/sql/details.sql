-- What stands beside the last terms of elections.
SELECT name, term, holder, (extract(epoch FROM since) * 1000)::bigint, metadata::text
FROM @schema@.tenure_advisory WHERE name = ANY ($1) AND term > 0
