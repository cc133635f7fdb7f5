"""An example of a package that adds a task driver and a device plugin to lepa."""
