"""Tools that know nothing of the domain."""
