SELECT term FROM tenure_fence WHERE election = ?1
