"""Devices that tasks may ask for: what finds them, and what gives them to a task."""
