"""Where objects live."""

from tests.builders import make_job

from lepa.model.allocation import Allocation
from lepa.model.wire import from_msgpack
from lepa.state import keys


def test_a_slash_in_an_id_does_not_spill_into_the_next_part() -> None:
    key = keys.job_key("default", "batch/dispatch-1-%2F")
    assert key == "jobs/default/batch%2Fdispatch-1-%252F"
    assert keys.split(key) == ("jobs", ("default", "batch/dispatch-1-%2F"))


def test_numbers_sort_as_numbers() -> None:
    versions = [keys.job_version_key("default", "web", version) for version in (2, 10, 100)]
    assert sorted(versions) == versions


def test_an_allocation_is_stored_without_its_job() -> None:
    put = keys.put(keys.alloc_key("a"), Allocation(id="a", job=make_job()))
    assert from_msgpack(put.value, Allocation).job is None


def test_every_key_belongs_to_a_known_table() -> None:
    made = [
        keys.job_key("ns", "j"),
        keys.job_version_key("ns", "j", 1),
        keys.job_submission_key("ns", "j", 1),
        keys.eval_key("e"),
        keys.alloc_key("a"),
        keys.deployment_key("d"),
        keys.node_key("n"),
        keys.node_pool_key("p"),
        keys.namespace_key("ns"),
        keys.service_key("ns", "s", "i"),
        keys.scaling_event_key("ns", "j", "g", 1),
        keys.scheduler_configuration_key(),
        keys.autopilot_key(),
        keys.kv_key("some/key"),
        keys.kv_delay_key("some/key"),
        keys.session_key("s"),
        keys.variable_key("ns", "a/b"),
        keys.variable_lease_key("ns", "a/b"),
        keys.root_key("k"),
        *(
            keys.acl_key(kind, "x")
            for kind in ("policies", "tokens", "roles", "auth_methods", "binding_rules", "one_time", "bootstrap")
        ),
        keys.overlay_key("o", "10.0.0.0/24"),
        keys.host_volume_key("ns", "v"),
        keys.volume_claim_key("c"),
        keys.csi_volume_key("ns", "v"),
        keys.csi_claim_key("ns", "v", "a"),
        keys.node_work_key("n", "w"),
    ]
    assert {keys.split(key)[0] for key in made} == set(keys.KINDS)
