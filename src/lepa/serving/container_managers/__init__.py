"""Where the parts of a serving cluster run, behind one protocol."""
