"""What python-nomad's own tests import as `mock`: the standard library has it."""

from unittest.mock import *  # noqa: F403
