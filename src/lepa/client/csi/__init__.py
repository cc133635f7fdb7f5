"""Volumes of CSI plugins on a node: the plugins that run here, and what is mounted of theirs."""
