SELECT @schema@.tenure_advisory_warm_up()
