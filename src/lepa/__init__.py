"""lepa: run jobs, find them by name, serve models."""

__version__ = "0.1.0"
