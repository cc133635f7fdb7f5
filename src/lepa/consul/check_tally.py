"""Pure: what results in a row make of a check's status, as Consul counts.

The first result applies at once. After that a check passes with `success_before_passing` good results in a row, is
critical with `failures_before_critical` bad ones, and warns from `failures_before_warning` of them on.
"""

from lepa.consul.registrations import Definition


class Tally:
    """Results of one check. status: what it is now."""

    def __init__(self, definition: Definition, status: str) -> None:
        self._definition = definition
        self._good = definition.success_before_passing
        self._bad = definition.failures_before_critical
        self.status = status

    def take(self, result: str) -> str:
        """One more result; the status that it leaves."""
        if result == "critical":
            self._bad, self._good = self._bad + 1, 0
            if self._bad >= self._definition.failures_before_critical:
                self.status = "critical"
            elif self._bad >= self._definition.failures_before_warning:
                self.status = "warning"
        else:
            self._good, self._bad = self._good + 1, 0
            if self._good >= self._definition.success_before_passing:
                self.status = result
        return self.status
