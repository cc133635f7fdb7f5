"""Pure: how templates are rendered on this node: `client { template { … } }`. Times are seconds."""

import msgspec

DENIED = ("executeTemplate", "plugin", "writeToFile")


class TemplateSettings(msgspec.Struct, frozen=True):
    """denied: functions that templates may not use. file_sandbox: `file` reads the allocation's files only.

    quiet_s, quiet_max_s: how long data must not have changed before a rendering, and when one is made all the same;
    they hold for templates without a `wait` of their own, which bounds_s (least, most) hold within limits. query_s: the
    longest wait for an answer. attempts, backoff_s, backoff_max_s: how a query that fails is made again before a task's
    first start; attempts 0: for ever.
    """

    denied: tuple[str, ...] = DENIED
    file_sandbox: bool = True
    quiet_s: float = 5.0
    quiet_max_s: float = 240.0
    bounds_s: tuple[float, float] = (0.0, 86_400.0)
    query_s: float = 300.0
    attempts: int = 12
    backoff_s: float = 0.25
    backoff_max_s: float = 60.0

    def quiet(self, wanted_s: float | None) -> float:
        """How long to wait for quiet when a template wants this."""
        return self.quiet_s if wanted_s is None else self._within(wanted_s)

    def quiet_max(self, wanted_s: float | None) -> float:
        """How long to wait at most when a template wants this."""
        return self.quiet_max_s if wanted_s is None else self._within(wanted_s)

    def _within(self, seconds: float) -> float:
        least, most = self.bounds_s
        return min(max(seconds, least), most)
