"""Pure: everything that one evaluation is decided from."""

from collections.abc import Callable
from dataclasses import dataclass

from lepa.model.evaluation import Evaluation
from lepa.model.job import Job
from lepa.scheduler.columns import NodeColumns
from lepa.scheduler.view import View


@dataclass(frozen=True)
class Context:
    """now_ns: Unix nanoseconds. seed: decides between equals. new_id: a fresh id. columns: kept by the caller."""

    evaluation: Evaluation
    view: View
    columns: NodeColumns
    now_ns: int
    seed: int
    new_id: Callable[[], str]

    @property
    def job(self) -> Job | None:
        """The newest version of the job, None when it was purged."""
        return self.view.job(self.evaluation.namespace, self.evaluation.job_id)
