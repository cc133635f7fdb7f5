"""Networks of allocations: namespaces, CNI plugins, the node's bridge, overlays across nodes."""
