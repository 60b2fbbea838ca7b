SELECT boot_id, boot_is_kernels, time_ns FROM host WHERE one = 1
