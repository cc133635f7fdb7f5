"""Pure: what changed between two looks at an evaluation and its allocations, as the monitor tells it."""

from collections.abc import Sequence

from lepa.cli.output import Json, short

ENDED = frozenset({"complete", "failed", "canceled"})


class EvaluationProgress:
    """Remembers what was told, and tells what is new."""

    def __init__(self, verbose: bool = False) -> None:
        self._verbose = verbose
        self._status = ""
        self._trigger_told = False
        self._deployment = ""
        self._allocations: dict[str, Json] = {}

    def update(self, evaluation: Json, allocations: Sequence[Json]) -> list[str]:
        """One line for each thing that is new since the last look."""
        lines = self._of_evaluation(evaluation)
        return lines + self._of_allocations(evaluation, allocations) + self._of_status(evaluation)

    def _of_evaluation(self, evaluation: Json) -> list[str]:
        lines = []
        if not self._trigger_told:
            self._trigger_told = True
            lines.append(_trigger(evaluation, self._verbose))
        deployment = evaluation.get("DeploymentID", "")
        if deployment and deployment != self._deployment:
            self._deployment = deployment
            lines.append(f'Evaluation within deployment: "{short(deployment, self._verbose)}"')
        return lines

    def _of_allocations(self, evaluation: Json, allocations: Sequence[Json]) -> list[str]:
        lines = []
        for allocation in sorted(allocations, key=lambda each: (each["CreateIndex"], each["Name"])):
            before = self._allocations.get(allocation["ID"])
            self._allocations[allocation["ID"]] = allocation
            if before is None:
                lines.append(self._appeared(evaluation, allocation))
            elif before["ClientStatus"] != allocation["ClientStatus"]:
                lines.append(self._changed(before, allocation))
        return lines

    def _appeared(self, evaluation: Json, allocation: Json) -> str:
        name, node, group = self._names(allocation)
        older = allocation["CreateIndex"] < evaluation["CreateIndex"]
        if allocation["DesiredStatus"] != "run":
            return f'Allocation "{name}" stopped: node "{node}", group "{group}"'
        return f'Allocation "{name}" {"modified" if older else "created"}: node "{node}", group "{group}"'

    def _changed(self, before: Json, allocation: Json) -> str:
        name, *_ = self._names(allocation)
        why = allocation.get("ClientDescription")
        return f'Allocation "{name}" status changed: "{before["ClientStatus"]}" -> "{allocation["ClientStatus"]}"' + (
            f" ({why})" if why else ""
        )

    def _names(self, allocation: Json) -> tuple[str, str, str]:
        verbose = self._verbose
        return short(allocation["ID"], verbose), short(allocation["NodeID"], verbose), allocation["TaskGroup"]

    def _of_status(self, evaluation: Json) -> list[str]:
        before, self._status = self._status, evaluation["Status"]
        if not before or before == self._status:
            return []
        return [f'Evaluation status changed: "{before}" -> "{self._status}"']


def _trigger(evaluation: Json, verbose: bool) -> str:
    causes = {
        "node-update": ("node", short(evaluation.get("NodeID", ""), verbose)),
        "max-plan-attempts": ("job", evaluation.get("JobID", "")),
    }
    what, name = causes.get(evaluation.get("TriggeredBy", ""), ("job", evaluation.get("JobID", "")))
    return f'Evaluation triggered by {what} "{name}"'


def ending(evaluation: Json, verbose: bool = False) -> str:
    """The line that says how an evaluation ended."""
    line = f'Evaluation "{short(evaluation["ID"], verbose)}" finished with status "{evaluation["Status"]}"'
    if evaluation.get("FailedTGAllocs"):
        return f"{line} but failed to place all allocations:"
    if why := evaluation.get("StatusDescription"):
        return f"{line} ({why})"
    return line
