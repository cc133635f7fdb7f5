"""What a benchmark returns, and how figures are printed and written.

A benchmark file defines ``run() -> list[Figure]``. A figure stands beside another one taken in the same run on the
same machine, because only the ratio of the two travels between machines.
"""

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    name: dotted, stable. value: in `unit`. beside: the comparison taken in the same run (same unit), or None where
    nothing comparable exists. beside_name: what the comparison is.
    """

    name: str
    value: float
    unit: str
    beside: float | None = None
    beside_name: str = ""

    @property
    def ratio(self) -> float | None:
        """value / beside, or None without a comparison."""
        return self.value / self.beside if self.beside else None

    def line(self) -> str:
        """The figure as one aligned line of text."""
        text = f"{self.name:<40} {self.value:>14,.2f} {self.unit:<10}"
        if self.beside is not None:
            text += f" beside {self.beside_name or 'reference'} {self.beside:,.2f} (ratio {self.ratio or 0:.2f})"
        return text.rstrip()

    def record(self) -> dict[str, Any]:
        """The figure as the JSON object that `script/bench --json` writes."""
        record = asdict(self)
        record.pop("beside_name")
        return {**record, "ratio": self.ratio}


def median_of(runs: int, measure: Any) -> float:
    """The median of `runs` calls of `measure`, each of which returns one number."""
    return median(measure() for _ in range(runs))
