"""Drop-ins for older leader-election classes: pure Python, no dependencies."""
