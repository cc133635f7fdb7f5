"""Durable revisions: objects under keys, committed in bounded transactions, followed from any revision."""
