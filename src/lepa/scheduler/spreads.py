"""Pure: spread blocks: how many allocations each value of an attribute should have, and has.

With targets a value wants its percentage of the group's count; what the targets leave is shared evenly by the other
values that feasible nodes have. Without targets all values share evenly. A value that wants any wants at least one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lepa.model.allocation import Allocation
from lepa.model.constraint import Spread
from lepa.model.job import Job, TaskGroup
from lepa.scheduler.columns import Mask, NodeColumns
from lepa.scheduler.feasible import TargetColumn


@dataclass
class SpreadBlock:
    """codes: (rows,). wanted, used: allocations by code. share: this block's weight over the sum of all weights."""

    codes: NDArray[np.int32]
    wanted: list[float]
    used: list[int]
    share: float

    def boost(self, code: int) -> float:
        """How far below its wanted number a value stays with one more; negative above it; always finite."""
        wanted, used = self.wanted[code], self.used[code]
        return self.share * ((wanted - used - 1) / wanted if wanted else -(used + 1.0))


def spread_blocks(
    columns: NodeColumns, job: Job, group: TaskGroup, own: Sequence[Allocation], feasible: Mask
) -> list[SpreadBlock]:
    """The spreads of the job and the group with what is there now."""
    spreads = [*job.spreads, *group.spreads]
    total = sum(spread.weight for spread in spreads) or 1
    return [_block(columns, spread, spread.weight / total, group.count, own, feasible) for spread in spreads]


def _block(
    columns: NodeColumns, spread: Spread, share: float, count: int, own: Sequence[Allocation], feasible: Mask
) -> SpreadBlock:
    coded = columns.coded(TargetColumn(spread.attribute))
    present = {code for code in np.unique(coded.codes[feasible]).tolist() if coded.values[code] is not None}
    percents = {target.value: target.percent for target in spread.spread_target}
    others = [code for code in present if coded.values[code] not in percents]
    rest = max(0, 100 - sum(percents.values())) / max(1, len(others))
    wanted = [0.0] * len(coded.values)
    for code in present:
        percent = percents.get(str(coded.values[code]), rest)
        wanted[code] = max(1.0, percent / 100 * count) if percent else 0.0
    used = np.bincount(coded.codes, columns.count_rows(own), len(coded.values)).astype(int).tolist()
    return SpreadBlock(coded.codes, wanted, used, share)
