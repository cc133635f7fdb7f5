"""Gossip between servers: SWIM with Lifeguard as memberlist speaks it, and Serf above it."""
