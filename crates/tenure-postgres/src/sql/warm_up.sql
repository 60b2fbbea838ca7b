SELECT @schema@.tenure_warm_up()
