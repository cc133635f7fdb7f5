"""The scheduler, as dialogues."""

from pathlib import Path

import msgspec
import pytest
from tests.builders import make_eval, make_group, make_job, make_node, make_task, make_task_state, make_update
from tests.fake_view import FakeView
from tests.scenario.transcript import check

from lepa.kit.durations import MINUTE, SECOND, parse_duration, parse_rfc3339, rfc3339
from lepa.model.allocation import Allocation, DesiredTransition
from lepa.model.constraint import Constraint, Spread
from lepa.model.evaluation import AllocMetric
from lepa.model.job import Job
from lepa.model.node import DrainStrategy
from lepa.model.operator import PreemptionConfig, SchedulerConfiguration
from lepa.model.policies import DisconnectStrategy, ReschedulePolicy
from lepa.model.resources import NetworkResource, Port
from lepa.scheduler.outcome import Outcome

SCRIPTS = sorted((Path(__file__).parent / "scheduler").glob("*.txt"))


class Cluster:
    """A cluster that a script builds and troubles. Times are told since its start.

    node NAME [cpu= memory= dc= rack= class=]    change NAME status=… | drain=1 | eligible=0    remove NAME
    job NAME [count= type= priority= cpu= env= port= spread= rack= distinct= max_parallel= canary= lost_after=
    attempts=]    stop NAME    run [JOB] evaluates    clients    fail ALLOC    complete ALLOC    move ALLOC    promote
    wait DURATION    allocs
    """

    def __init__(self) -> None:
        self.view = FakeView()
        self.start_ns = self.view.now_ns
        self.names: dict[str, str] = {}
        self.known_deployments: set[str] = set()
        self.view.configuration = SchedulerConfiguration(
            preemption_config=PreemptionConfig(service_scheduler_enabled=True)
        )

    def act(self, name: str, words: list[str], options: dict[str, str]) -> list[str]:
        answers: list[str] = getattr(self, f"do_{name}")(words, options)
        return answers

    def do_node(self, words: list[str], options: dict[str, str]) -> list[str]:
        node = make_node(
            words[0],
            cpu=int(options.get("cpu", "4000")),
            memory_mb=int(options.get("memory", "8192")),
            datacenter=options.get("dc", "dc1"),
            node_class=options.get("class", ""),
            meta={"rack": options["rack"]} if "rack" in options else {},
        )
        self.view.put_node(node)
        return []

    def do_change(self, words: list[str], options: dict[str, str]) -> list[str]:
        if "status" in options:
            seconds = self.view.now_ns // SECOND
            self.view.change_node(words[0], status=options["status"], status_updated_at=seconds)
        if "drain" in options:
            self.view.change_node(words[0], drain_strategy=DrainStrategy(), scheduling_eligibility="ineligible")
        if "eligible" in options:
            self.view.change_node(words[0], scheduling_eligibility="ineligible")
        return []

    def do_remove(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.view.remove_node(words[0])
        return []

    def do_job(self, words: list[str], options: dict[str, str]) -> list[str]:
        job = self.view.put_job(_job(words[0], options))
        return [f"version {job.version}"]

    def do_stop(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.view.put_job(msgspec.structs.replace(self._job(words), stop=True))
        return []

    def do_run(self, words: list[str], options: dict[str, str]) -> list[str]:
        before = {alloc.id for alloc in self.view.all_allocs()}
        outcome = self.view.evaluate(make_eval("run", job=self._job(words)))
        return self._told(outcome, before) or ["nothing to do"]

    def do_clients(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.view.run_clients()
        return []

    def do_fail(self, words: list[str], options: dict[str, str]) -> list[str]:
        state = make_task_state(state="dead", failed=True, finished_at=rfc3339(self.view.now_ns))
        self.view.put_alloc(self._alloc(words[0]), client_status="failed", task_states={"web": state})
        return []

    def do_complete(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.view.put_alloc(self._alloc(words[0]), client_status="complete")
        return []

    def do_move(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.view.put_alloc(self._alloc(words[0]), desired_transition=DesiredTransition(migrate=True))
        return []

    def do_promote(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.view.promote()
        return []

    def do_wait(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.view.now_ns += parse_duration(words[0])
        return []

    def do_allocs(self, words: list[str], options: dict[str, str]) -> list[str]:
        found = [f"{self._named(a)} on {a.node_id} is {a.client_status}" for a in self.view.wanted()]
        return found or ["none"]

    def _job(self, words: list[str]) -> Job:
        job = self.view.job("default", words[0] if words else "web")
        assert job is not None
        return job

    def _alloc(self, name: str) -> Allocation:
        return self.view.alloc(self.names[name])

    def _named(self, alloc: Allocation) -> str:
        """Short names in the order in which allocations appear: a1, a2, …"""
        for name, alloc_id in self.names.items():
            if alloc_id == alloc.id:
                return name
        name = f"a{len(self.names) + 1}"
        self.names[name] = alloc.id
        return name

    def _told(self, outcome: Outcome, before: set[str]) -> list[str]:
        plan = outcome.plan
        told = []
        if plan.deployment is not None and plan.deployment.id in self.known_deployments:
            wanted = ", ".join(f"{n} {state.desired_total}" for n, state in plan.deployment.task_groups.items())
            told.append(f"deployment wants {wanted}")
        elif plan.deployment is not None:
            told.append(f"deployment opened: {plan.deployment.status_description}")
        self.known_deployments |= {each.id for each in self.view.deployments}
        told += [f"deployment {update.status}: {update.status_description}" for update in plan.deployment_updates]
        for stop in plan.stops:
            told.append(f"{stop.desired_status} {self._named(self.view.alloc(stop.alloc_id))}: {stop.description}")
        for alloc in plan.updates:
            told.append(self._update(alloc, new=alloc.id not in before))
        for name, metric in outcome.evaluation.failed_tg_allocs.items():
            count = outcome.evaluation.queued_allocations[name]
            told.append(f"not placed: {count} of {name}: {_reasons(metric)}")
        for evaluation in outcome.new_evaluations:
            due = parse_rfc3339(evaluation.wait_until) - self.start_ns
            when = f" at {due // SECOND}s" if evaluation.wait_until[:4] != "0001" else ""
            told.append(f"evaluation {evaluation.status}{when}: {evaluation.triggered_by}")
        return told

    def _update(self, alloc: Allocation, *, new: bool) -> str:
        name = self._named(alloc)
        if not new:
            return f"change {name}: version {alloc.job_version}, {alloc.desired_status}, {alloc.client_status}"
        follows = (
            f" after {self._named(self.view.alloc(alloc.previous_allocation))}" if alloc.previous_allocation else ""
        )
        canary = ", canary" if alloc.deployment_status is not None and alloc.deployment_status.canary else ""
        return f"place {name} {alloc.name} on {alloc.node_id}, version {alloc.job_version}{canary}{follows}"


def _job(name: str, options: dict[str, str]) -> Job:
    update = None
    if "max_parallel" in options or "canary" in options:
        update = make_update(max_parallel=int(options.get("max_parallel", "1")), canary=int(options.get("canary", "0")))
    policy = ReschedulePolicy()
    if "attempts" in options:
        policy = ReschedulePolicy(attempts=int(options["attempts"]), interval=60 * MINUTE, unlimited=False)
    constraints = []
    if "rack" in options:
        constraints.append(Constraint(ltarget="${meta.rack}", operand="=", rtarget=options["rack"]))
    if "distinct" in options:
        constraints.append(Constraint(operand="distinct_hosts"))
    ports = (Port(label="http", value=int(options["port"])),) if "port" in options else ()
    group = make_group(
        count=int(options.get("count", "1")),
        tasks=(make_task(cpu=int(options.get("cpu", "100")), env={"v": options.get("env", "")}),),
        update=update,
        reschedule_policy=policy,
        disconnect=DisconnectStrategy(lost_after=parse_duration(options["lost_after"]))
        if "lost_after" in options
        else None,
        constraints=tuple(constraints),
        networks=(NetworkResource(reserved_ports=ports),) if ports else (),
        spreads=(Spread(attribute=f"${{{options['spread']}}}", weight=100),) if "spread" in options else (),
    )
    return make_job(
        name, groups=(group,), type=options.get("type", "service"), priority=int(options.get("priority", "50"))
    )


def _reasons(metric: AllocMetric) -> str:
    filtered = [f"{count} filtered by {reason}" for reason, count in metric.constraint_filtered.items()]
    exhausted = [f"{count} out of {dimension}" for dimension, count in metric.dimension_exhausted.items()]
    return ", ".join([f"{metric.nodes_evaluated} evaluated", *filtered, *exhausted])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_dialogue(script: Path, rewrite: bool) -> None:
    check(script, Cluster().act, rewrite)
