"""Pure: where a job may or would rather run."""

from msgspec import field

from lepa.model.wire import Wire


class Constraint(Wire, frozen=True):
    """A hard requirement: `ltarget operand rtarget`, targets may be `${attr.kernel.name}` and the like."""

    ltarget: str = field(default="", name="LTarget")
    rtarget: str = field(default="", name="RTarget")
    operand: str = "="


class Affinity(Wire, frozen=True):
    """A preference; weight -100..100, negative repels."""

    ltarget: str = field(default="", name="LTarget")
    rtarget: str = field(default="", name="RTarget")
    operand: str = "="
    weight: int = 50


class SpreadTarget(Wire, frozen=True):
    """The wanted share, in percent, of one attribute value."""

    value: str = ""
    percent: int = 0


class Spread(Wire, frozen=True):
    """Distribute allocations over the values of an attribute; weight 1..100."""

    attribute: str = ""
    weight: int = 50
    spread_target: tuple[SpreadTarget, ...] = ()
