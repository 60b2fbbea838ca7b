SELECT coalesce(max(version), 0) FROM @schema@.tenure_migrations WHERE table_name = @table_literal@
