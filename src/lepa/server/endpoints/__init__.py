"""Answers to `lepa.rpc.methods`, one noun a module."""
