"""The vocabulary: jobs, nodes, allocations and the rest, as plain data with Nomad's JSON keys."""
