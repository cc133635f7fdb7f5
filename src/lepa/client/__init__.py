"""The agent on a node: registers it, follows its allocations, runs their tasks, reports what happens."""
