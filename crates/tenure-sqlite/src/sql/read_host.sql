SELECT boot_id, time_ns FROM host WHERE one = 1
