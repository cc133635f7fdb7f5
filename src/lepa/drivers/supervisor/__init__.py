"""The process that outlives the agent: it starts tasks, pumps and rotates their logs, and keeps their exit codes.

Its modules import the standard library only, and little of that: it must stay small and start fast. `client` is the
agent's side and is never imported by the process itself.
"""
