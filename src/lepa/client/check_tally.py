"""Pure: what the results of one check in a row make of its status and of its allocation's health.

A check may need several successes before it passes, and several failures before it warns or is critical. Until its
first result it has its initial status, but its allocation is not healthy.
"""

from lepa.model.service import ServiceCheck


class Tally:
    """Results of one check. status: "passing", "warning" or "critical"."""

    def __init__(self, spec: ServiceCheck) -> None:
        self._spec = spec
        self._in_a_row = 0
        self._last = ""
        self.status = spec.initial_status or "critical"

    def take(self, status: str) -> bool:
        """One more result; True for the first one."""
        first, good = not self._last, status == "passing"
        self._in_a_row = self._in_a_row + 1 if good == (self._last == "passing") else 1
        self._last = status
        if good:
            self.status = status if self._in_a_row >= self._spec.success_before_passing else self.status
        elif self._in_a_row >= self._spec.failures_before_critical:
            self.status = status
        elif self._in_a_row >= self._spec.failures_before_warning > 0:
            self.status = "warning"
        return first

    @property
    def asked(self) -> bool:
        """Whether there has been a result."""
        return bool(self._last)

    @property
    def healthy(self) -> bool:
        """Whether the check lets its allocation be healthy; `on_update` says which results it overlooks."""
        if self._spec.on_update == "ignore":
            return True
        accepted = {"passing", "warning"} if self._spec.on_update == "ignore_warnings" else {"passing"}
        return self.asked and self.status in accepted
