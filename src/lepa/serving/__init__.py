"""Models as replicated prediction endpoints with a latency objective; a guest of the cluster."""
