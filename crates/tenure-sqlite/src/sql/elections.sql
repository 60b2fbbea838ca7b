-- Every election that somebody ever led.
SELECT election FROM lease ORDER BY election
