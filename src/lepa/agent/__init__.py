"""Wiring: reads the configuration, builds the parts and joins them. The only place that knows concrete classes."""
