"""Names of services and nodes, answered over UDP and TCP."""
