"""Follows an evaluation, then its deployment, until both have ended.

When the deployment changes it is drawn again in its place on a terminal, and printed once more in a pipe.
Exit codes are Nomad's: 0 placed (and deployed), 1 failed, 2 not all could be placed. When a deployment goes on to
succeed although the first evaluation had to leave something unplaced, that is success.
"""

from collections.abc import Callable

from lepa.cli import placement
from lepa.cli.deployment_view import describe
from lepa.cli.evaluation_progress import ENDED, EvaluationProgress, ending
from lepa.cli.output import Json, paint, short
from lepa.cli.session import Session, segment
from lepa.cli.task_failures import failure_lines
from lepa.model.errors import LepaError

PLACED, FAILED, UNPLACED = 0, 1, 2

QUICK_S, CALM_S = 0.1, 1.0
QUICK_LOOKS = 20
"""How often something is looked at: quickly while it is likely to change, then calmly."""

DEPLOYMENT_ENDED = frozenset({"successful", "failed", "cancelled"})
EVALUATIONS_MAX = 16
"""Follow-up evaluations that are followed, one after another."""


class Monitor:
    """Tells a person what becomes of an evaluation."""

    def __init__(self, session: Session, *, verbose: bool = False) -> None:
        self._session = session
        self._verbose = verbose
        self._unhealthy = 0
        self._failures: list[str] = []

    def evaluation(self, identifier: str) -> int:
        """Follow an evaluation and whatever it leads to; the exit code."""
        unplaced = False
        evaluation: Json = {}
        following = identifier
        for _ in range(EVALUATIONS_MAX):
            evaluation = self.only_evaluation(following)
            unplaced = unplaced or bool(evaluation.get("FailedTGAllocs"))
            following = evaluation.get("NextEval", "")
            if not following:
                break
            self._step(f'Monitoring next evaluation "{self._short(following)}"')
        if evaluation["Status"] != "complete":
            return FAILED
        if deployment := evaluation.get("DeploymentID") or self._deployment_of(evaluation):
            return self.deployment(deployment)
        return UNPLACED if unplaced else PLACED

    def only_evaluation(self, identifier: str) -> Json:
        """Follow an evaluation until it ends, and nothing that it leads to."""
        self._step(f'Monitoring evaluation "{self._short(identifier)}"')
        progress = EvaluationProgress(self._verbose)
        nomad = self._session.nomad
        query = {"namespace": "*"}
        for pause in _pauses():
            evaluation: Json = nomad.get(f"/v1/evaluation/{identifier}", query).value
            allocations = nomad.get(f"/v1/evaluation/{identifier}/allocations", query).value or []
            for line in progress.update(evaluation, allocations):
                self._line(line)
            if evaluation["Status"] in ENDED:
                self._tell_end(evaluation)
                return evaluation
            self._session.sleep(pause)
        raise LepaError("timeout", f'evaluation "{identifier}" is still not done; `lepa eval status` shows it')

    def _tell_end(self, evaluation: Json) -> None:
        self._step(ending(evaluation, self._verbose))
        unplaced = evaluation.get("FailedTGAllocs") or {}
        for line in placement.failures(unplaced):
            self._session.out.line(f"    {line}")
        if unplaced:
            self._session.out.line(f"    {placement.where_to_look(evaluation['JobID'])}")
        if blocked := evaluation.get("BlockedEval"):
            self._session.out.line(
                f'    Evaluation "{self._short(blocked)}" waiting for additional capacity to place remainder'
            )

    def _deployment_of(self, evaluation: Json) -> str:
        """The deployment that placing a new version has begun; an evaluation made by hand has none of its own."""
        if evaluation.get("TriggeredBy") != "job-register" or evaluation.get("Type") not in ("service", "system"):
            return ""
        path = f"/v1/job/{segment(evaluation['JobID'])}/deployment"
        answer = self._session.nomad.find(path, {"namespace": evaluation.get("Namespace")})
        latest = answer.value if answer else None
        if not latest or latest["JobModifyIndex"] < evaluation.get("JobModifyIndex", 0):
            return ""
        active = latest["Status"] not in DEPLOYMENT_ENDED
        return str(latest["ID"]) if active or latest["CreateIndex"] >= evaluation["CreateIndex"] else ""

    def deployment(self, identifier: str, every_s: float = CALM_S) -> int:
        """Follow a deployment until it ends; the exit code."""
        self._step(f'Monitoring deployment "{self._short(identifier)}"')
        drawn = self._session.out.live and self._session.out.colour
        try:
            ended = self._draw_deployment(identifier, every_s) if drawn else self._print_deployment(identifier, every_s)
        except KeyboardInterrupt:
            again = f"lepa deployment status -monitor {self._short(identifier)}"
            self._session.out.error(f"The deployment goes on; follow it again with `{again}`")
            raise
        return PLACED if ended["Status"] == "successful" else FAILED

    def _print_deployment(self, identifier: str, every_s: float) -> Json:
        before = ""
        for pause in _pauses(every_s):
            deployment = self._deployment(identifier)
            shown = self._shown(deployment)
            if shown != before:
                before = shown
                self._session.out.line(f"\n    {self._session.clock()}")
                self._session.out.line(_indented(shown))
                self._session.out.flush()
            if deployment["Status"] in DEPLOYMENT_ENDED:
                return deployment
            self._session.sleep(pause)
        raise _too_long(identifier)

    def _draw_deployment(self, identifier: str, every_s: float) -> Json:
        """Draw in place; what stands there at the end stays."""
        from rich.live import Live
        from rich.text import Text

        with Live(Text(""), auto_refresh=False, transient=False) as live:
            return self._redraw(identifier, every_s, lambda text: live.update(Text.from_ansi(text), refresh=True))

    def _redraw(self, identifier: str, every_s: float, draw: Callable[[str], None]) -> Json:
        before: Json = {}
        for pause in _pauses(every_s):
            deployment = self._deployment(identifier)
            if deployment == before:
                self._session.sleep(pause)
                continue
            before = deployment
            mark = {"successful": paint("✓", "green"), "failed": paint("✗", "red"), "cancelled": paint("✗", "red")}
            status = deployment["Status"]
            head = f'  {mark.get(status, "…")} Deployment "{self._short(identifier)}" {status}'
            draw(f"{head}\n\n    {self._session.clock()}\n{_indented(self._shown(deployment))}\n")
            if status in DEPLOYMENT_ENDED:
                return deployment
            self._session.sleep(pause)
        raise _too_long(identifier)

    def _shown(self, deployment: Json) -> str:
        """How far it is, and why allocations are unhealthy."""
        shown = describe(deployment, self._verbose)
        unhealthy = sum(state["UnhealthyAllocs"] for state in (deployment.get("TaskGroups") or {}).values())
        if unhealthy != self._unhealthy:
            self._unhealthy = unhealthy
            path = f"/v1/deployment/allocations/{deployment['ID']}"
            found = self._session.nomad.get(path, {"namespace": deployment.get("Namespace")}).value or []
            failed = [each for each in found if (each.get("DeploymentStatus") or {}).get("Healthy") is False]
            self._failures = failure_lines(failed, self._verbose)
        return "\n".join([shown, *(["", "Unhealthy"] if self._failures else []), *self._failures])

    def _deployment(self, identifier: str) -> Json:
        found: Json = self._session.nomad.get(f"/v1/deployment/{identifier}", {"namespace": "*"}).value
        return found

    def _short(self, identifier: str) -> str:
        return short(identifier, self._verbose)

    def _step(self, text: str) -> None:
        self._session.out.line(paint(f"==> {self._session.clock()}: {text}", "bold"))
        self._session.out.flush()

    def _line(self, text: str) -> None:
        self._session.out.line(f"    {self._session.clock()}: {text}")
        self._session.out.flush()


LOOKS_MAX = 7 * 24 * 3600
"""Looks at one thing: a week of calm ones."""


def _pauses(calm_s: float = CALM_S) -> list[float]:
    return [*[QUICK_S] * QUICK_LOOKS, *[calm_s] * LOOKS_MAX]


def _too_long(identifier: str) -> LepaError:
    return LepaError("timeout", f'deployment "{identifier}" is still going on; `lepa deployment status` shows it')


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.split("\n"))
