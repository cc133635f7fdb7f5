"""The HTTP API as Python calls: `Connection` for scripts and the command line, `AsyncConnection` for running parts."""
