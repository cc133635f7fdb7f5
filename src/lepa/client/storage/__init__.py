"""Storage on a node: volumes that plugins make, and volumes of CSI plugins."""
