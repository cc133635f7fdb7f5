"""The command line, for people: Nomad's verbs and flags, and serving."""
