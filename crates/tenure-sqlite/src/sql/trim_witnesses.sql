-- Rows of handles that hold nothing. Each handle writes its row again when it is granted a lease.
DELETE FROM witness
WHERE id <> ?1 AND id NOT IN (SELECT witness FROM lease WHERE witness IS NOT NULL)
