"""What the cluster is, as seen by a server: immutable snapshots reduced from the store's changes."""
