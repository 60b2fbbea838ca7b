-- What becomes of a job from ?4 on: ?3 is 'pause', 'resume' or 'from_now', and ?5 is an instant
-- that only a clock that was ahead has got to.
UPDATE tick_job SET
    latest_ms = CASE
        WHEN ?3 = 'from_now' AND latest_ms > ?5 THEN ?4
        WHEN ?3 = 'resume' AND paused_ms IS NOT NULL THEN max(latest_ms, ?4)
        ELSE latest_ms
    END,
    anew_ms = CASE WHEN ?3 = 'from_now' AND latest_ms > ?5 THEN ?4 ELSE anew_ms END,
    paused_ms = CASE
        WHEN ?3 = 'pause' THEN coalesce(paused_ms, ?4)
        WHEN ?3 = 'resume' THEN NULL
        ELSE paused_ms
    END
WHERE election = ?1 AND job = ?2
