"""The HTTP edge: Nomad's paths, keys and headers over `lepa.rpc.methods`."""
