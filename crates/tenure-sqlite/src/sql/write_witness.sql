INSERT OR REPLACE INTO witness
    (id, pid_ns, pid, pid_start, guard_pid, guard_start, guard_group)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
