INSERT OR REPLACE INTO witness (id, pid_ns, pid, pid_start) VALUES (?1, ?2, ?3, ?4)
