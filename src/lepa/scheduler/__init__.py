"""Where allocations go, and why."""
