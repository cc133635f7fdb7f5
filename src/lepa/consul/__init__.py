"""Consul's HTTP API, as far as clients that discover services call it, answered from the cluster's own catalog."""
