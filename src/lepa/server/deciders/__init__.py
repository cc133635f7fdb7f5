"""Pure deciders: (snapshot, now) -> commands."""
