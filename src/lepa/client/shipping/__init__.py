"""Sends what tasks write to receivers of the operator's: syslog, fluentd, Loki.

Tasks write to their rotated files as ever; these files are the buffer. Whoever follows them slowly falls behind, and
what was rotated away before it was sent is counted as dropped. So no task ever waits for a receiver, nothing is held in
memory but one batch a task and receiver, and every driver's tasks are served alike.
"""
