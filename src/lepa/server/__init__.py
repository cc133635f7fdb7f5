"""The control plane: evaluations, plans, deciders and the answers to `lepa.rpc.methods`."""
