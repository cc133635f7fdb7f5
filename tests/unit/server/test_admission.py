"""What a submitted job has to pass."""

import pytest
from msgspec.structs import replace
from tests.builders import make_group, make_job
from tests.world import World

from lepa.model.errors import LepaError
from lepa.model.job_views import JobSubmission
from lepa.model.operator import SchedulerConfiguration
from lepa.model.service import Service
from lepa.model.tenancy import Namespace, NamespaceCapabilities
from lepa.server.admission import admit, bounded_submission, check_registration_allowed, examine
from lepa.server.settings import ServerSettings
from lepa.state.commands.tenancy import set_scheduler_configuration, upsert_namespace

SETTINGS = ServerSettings()


def test_everything_wrong_is_said_at_once() -> None:
    job = make_job(node_pool="ghost", namespace="nowhere", priority=101)
    problems = examine(World().snapshot, job, SETTINGS).problems
    assert problems.errors == (
        "job priority must be between [1, 100]",
        'job "web" is in nonexistent namespace "nowhere"',
        'job "web" is in nonexistent node pool "ghost"',
    )
    with pytest.raises(LepaError, match="3 errors occurred"):
        admit(World().snapshot, job, SETTINGS)
    with pytest.raises(LepaError, match="Job must be specified"):
        admit(World().snapshot, None, SETTINGS)


def test_priorities_are_what_the_servers_are_set_to() -> None:
    settings = ServerSettings(job_default_priority=70, job_max_priority=200)
    assert admit(World().snapshot, make_job(priority=0), settings).job.priority == 70
    assert admit(World().snapshot, make_job(priority=200), settings).job.priority == 200
    with pytest.raises(LepaError, match=r"between \[1, 200\]"):
        admit(World().snapshot, make_job(priority=201), settings)


def test_a_submitter_does_not_choose_a_parent() -> None:
    assert admit(World().snapshot, make_job(parent_id="other"), SETTINGS).job.parent_id == ""


def test_blocks_bring_the_constraints_that_they_imply() -> None:
    group = make_group(services=(Service(name="web", provider="nomad", port_label=""),))
    admitted = admit(World().snapshot, make_job(groups=(group,)), SETTINGS).job
    targets = [constraint.ltarget for constraint in admitted.task_groups[0].constraints]
    assert targets == ["${attr.nomad.service_discovery}"]


def test_a_namespace_may_forbid_drivers() -> None:
    world = World()
    capabilities = NamespaceCapabilities(disabled_task_drivers=("mock_driver",))
    world.do(upsert_namespace, Namespace(name="blue", capabilities=capabilities))
    problems = examine(world.snapshot, make_job(namespace="blue"), SETTINGS).problems
    assert problems.errors == ('used task driver "mock_driver" is not allowed in namespace "blue"',)
    only = replace(capabilities, disabled_task_drivers=(), enabled_task_drivers=("docker",))
    world.do(upsert_namespace, Namespace(name="blue", capabilities=only))
    assert len(examine(world.snapshot, make_job(namespace="blue"), SETTINGS).problems.errors) == 1


def test_new_work_can_be_kept_out() -> None:
    world = World()
    check_registration_allowed(world.snapshot)
    world.do(set_scheduler_configuration, SchedulerConfiguration(reject_job_registration=True))
    with pytest.raises(LepaError, match="disabled by the scheduler configuration"):
        check_registration_allowed(world.snapshot)


def test_a_text_that_is_too_large_is_not_kept() -> None:
    assert bounded_submission(None, 10) == (None, "")
    small = JobSubmission(source="job {}")
    assert bounded_submission(small, 10) == (small, "")
    kept, warning = bounded_submission(JobSubmission(source="x" * 11), 10)
    assert (kept, warning) == (None, "job source size of 11 B exceeds maximum of 10 B and will be discarded")
