"""lepa.serving.records"""

from collections.abc import Callable

import pytest

from lepa.model.errors import LepaError
from lepa.serving import records
from lepa.serving.autoscale import Autoscale
from lepa.serving.batch_sizes import Batching
from lepa.serving.records import Application, ModelVersion, Registry
from lepa.serving.selection import PolicyOptions

APP = Application("app", "doubles", "0", 1000)


def with_models(*versions: str) -> Registry:
    registry = records.add_application(Registry(), APP)
    for version in versions:
        registry = records.add_model(registry, ModelVersion("m", version, "doubles"))
    return registry


def test_every_change_is_another_revision_and_leaves_the_old_registry_alone() -> None:
    before = with_models("1")
    after = records.add_links(before, "app", ("m",))
    assert after.revision == before.revision + 1
    assert before.applications["app"].linked_models == ()
    assert after.applications["app"].linked_models == ("m",)


def test_the_newest_version_is_current_until_another_is_chosen_or_it_is_deleted() -> None:
    registry = with_models("1", "2", "3")
    assert registry.current == {"m": "3"}
    assert records.set_model_version(registry, "m", "1").current == {"m": "1"}
    assert records.delete_model(registry, "m", "3").current == {"m": "2"}
    assert records.delete_model(with_models("1"), "m", "1").current == {}


def test_deleting_an_application_deletes_its_links() -> None:
    registry = records.add_links(with_models("1"), "app", ("m",))
    again = records.add_application(records.delete_application(registry, "app"), APP)
    assert again.applications["app"].linked_models == ()


def test_registering_again_is_another_registration() -> None:
    registry = with_models("1")
    again = records.add_model(records.delete_model(registry, "m", "1"), ModelVersion("m", "1", "doubles"))
    assert again.models["m:1"].created != registry.models["m:1"].created


REFUSALS: list[tuple[Callable[[Registry], Registry], str, str]] = [
    (lambda r: records.add_application(r, APP), "conflict", "application 'app' already exists"),
    (lambda r: records.add_application(r, Application("a/b", "doubles", "", 1)), "invalid", "one part of a URL path"),
    (lambda r: records.add_application(r, Application("b", "doubles", "", 0)), "invalid", "latency_slo_micros"),
    (lambda r: records.add_application(r, Application("b", "pixels", "", 1)), "invalid", "not an input type"),
    (lambda r: records.delete_application(r, "x"), "not_found", "Application 'x' does not exist"),
    (lambda r: records.add_model(r, ModelVersion("m", "1", "d", batch_size=0)), "invalid", "The batch size must be"),
    (lambda r: records.add_model(r, ModelVersion("m:", "1", "d")), "invalid", "Invalid model name supplied: m:"),
    (lambda r: records.add_model(r, ModelVersion("m", "1,", "d")), "invalid", "Invalid model version supplied"),
    (lambda r: records.add_model(r, ModelVersion("m", "2", "d", ("a,",))), "invalid", "Invalid label supplied"),
    (lambda r: records.add_model(r, ModelVersion("", "2", "d")), "invalid", "needs a name and a version"),
    (lambda r: records.add_model(r, ModelVersion("m", "1", "d")), "conflict", "version '1' already exists"),
    (lambda r: records.add_model(r, ModelVersion("m", "2", "ints")), "conflict", "is not compatible"),
    (lambda r: records.delete_model(r, "m", "9"), "not_found", "version '9' does not exist"),
    (lambda r: records.set_model_version(r, "n", "1"), "not_found", "nonexistent model 'n'"),
    (lambda r: records.set_model_version(r, "m", "9"), "not_found", "non-existent version '9'"),
    (lambda r: records.add_links(r, "x", ("m",)), "not_found", "No app with name 'x' exists."),
    (lambda r: records.add_links(r, "app", ("n",)), "not_found", "No model with name 'n' exists."),
    (lambda r: records.add_links(r, "app", ()), "invalid", "Please provide the name"),
    (lambda r: records.add_links(r, "app", ("m", "m")), "invalid", "add links to 2 models"),
    (lambda r: records.add_links(r, "app", ("m",)), "conflict", "already linked to 'app'"),
    (lambda r: records.add_links(r, "app", ("o",)), "conflict", "A model with name m is already linked"),
    (lambda r: records.add_links(r, "app", ("words",)), "conflict", "incompatible input_type 'strings'"),
    (lambda r: records.delete_links(r, "x", ("m",)), "not_found", "No app with name x exists."),
    (lambda r: records.delete_links(r, "app", ("n",)), "not_found", "nonexistent link between app app and model n"),
]


@pytest.mark.parametrize(("change", "code", "sentence"), REFUSALS)
def test_a_refusal_says_why(change: Callable[[Registry], Registry], code: str, sentence: str) -> None:
    registry = records.add_links(with_models("1"), "app", ("m",))
    registry = records.add_model(registry, ModelVersion("o", "1", "doubles"))
    registry = records.add_model(registry, ModelVersion("words", "1", "strings"))
    with pytest.raises(LepaError, match=sentence) as refused:
        change(registry)
    assert refused.value.code == code


def test_views_have_clippers_keys() -> None:
    registry = records.add_links(with_models("1"), "app", ("m",))
    assert records.application_view(registry.applications["app"]) == {
        "name": "app",
        "input_type": "doubles",
        "default_output": "0",
        "latency_slo_micros": 1000,
        "linked_models": ["m"],
    }
    assert records.model_view(registry, registry.models["m:1"]) == {
        "model_name": "m",
        "model_version": "1",
        "input_type": "doubles",
        "labels": [""],
        "container_name": "",
        "model_data_path": "",
        "is_current_version": True,
    }


def test_a_full_registry_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "RECORDS_MAX", 1)
    with pytest.raises(LepaError, match="the registry is full"):
        records.add_application(with_models(), Application("b", "doubles", "", 1))


def test_scaling_belongs_to_a_model_and_goes_with_it() -> None:
    registry = records.set_autoscale(with_models("1"), "m", Autoscale(replicas_min=0))
    assert registry.scaling == {"m": Autoscale(replicas_min=0)}
    assert records.set_autoscale(registry, "m", None).scaling == {}
    assert records.delete_model(registry, "m", "1").scaling == {}
    with pytest.raises(LepaError, match="No model with name 'x' exists"):
        records.set_autoscale(registry, "x", None)
    with pytest.raises(LepaError, match="busy_target"):
        records.set_autoscale(registry, "m", Autoscale(busy_target=2.0))


def test_a_policy_of_several_models_takes_several_links_and_a_single_one_does_not() -> None:
    registry = records.add_model(with_models("1"), ModelVersion("n", "1", "doubles"))
    registry = records.set_policy(registry, "app", "majority", PolicyOptions())
    registry = records.add_links(records.add_links(registry, "app", ("m",)), "app", ("n",))
    assert registry.applications["app"].linked_models == ("m", "n")
    with pytest.raises(LepaError, match="policy single takes 1"):
        records.set_policy(registry, "app", "single", PolicyOptions())
    with pytest.raises(LepaError, match="Application 'x' does not exist"):
        records.set_policy(registry, "x", "single", PolicyOptions())


def test_an_endpoint_is_an_address_or_a_service() -> None:
    model = ModelVersion("e", "1", "strings", endpoint="10.0.0.1:80,10.0.0.2:80")
    assert records.model_view(Registry(), records.add_model(Registry(), model).models["e:1"])["endpoint"]
    with pytest.raises(LepaError, match="expected host:port"):
        records.add_model(Registry(), ModelVersion("e", "1", "strings", endpoint="nowhere"))


def test_rolling_back_goes_to_the_version_before_and_is_undone_by_itself() -> None:
    registry = records.roll_back(with_models("1", "2", "3"), "m")
    assert registry.current == {"m": "2"}
    assert records.roll_back(registry, "m").current == {"m": "3"}
    same = records.set_model_version(registry, "m", "2")
    assert same.previous == {"m": "3"}
    with pytest.raises(LepaError, match="the one before 2 is gone"):
        records.roll_back(records.delete_model(registry, "m", "3"), "m")
    with pytest.raises(LepaError, match="nonexistent model 'x'"):
        records.roll_back(registry, "x")


def test_the_batching_of_a_version_is_set_and_shown() -> None:
    registry = records.add_model(
        records.add_model(Registry(), ModelVersion("m", "1", "ints")), ModelVersion("m", "2", "ints", batch_size=4)
    )
    assert (registry.models["m:1"].ways, registry.models["m:2"].ways) == (Batching(), Batching("fixed", 4))
    changed = records.set_batching(registry, "m", "", Batching("quantile", wait_us=2000))
    assert changed.models["m:2"].ways == Batching("quantile", wait_us=2000)
    assert changed.revision == registry.revision + 1
    assert records.model_view(changed, changed.models["m:2"])["batching"]["policy"] == "quantile"
    assert "batching" not in records.model_view(changed, changed.models["m:1"])
    with pytest.raises(LepaError, match="version '9' does not exist"):
        records.set_batching(registry, "m", "9", Batching())
    with pytest.raises(LepaError, match="no batching policy"):
        records.set_batching(registry, "m", "1", Batching("best"))
