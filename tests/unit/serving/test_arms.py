"""lepa.serving.arms: which models answer, what their outputs come to, and what feedback says of them."""

import pytest

from lepa.model.errors import LepaError
from lepa.serving import arms
from lepa.serving.arms import Arms, combined
from lepa.serving.metrics import ApplicationMetrics
from lepa.serving.records import (
    Application,
    ModelVersion,
    PolicyOptions,
    Registry,
    add_application,
    add_links,
    add_model,
)
from lepa.serving.selection import Choice, Loss, Observation
from lepa.serving.served import NOBODY, Answer, Query, ServedApplication, ServedModel


class World:
    """An application linked to models "a" and "b", of which "a" has two versions."""

    def __init__(
        self, policy: str = "majority", options: PolicyOptions | None = None, links: tuple[str, ...] = ("a", "b")
    ):
        record = Application("app", "doubles", "0", 100_000, policy=policy, policy_options=options or PolicyOptions())
        registry = add_application(Registry(), record)
        for name, version in (("a", "1"), ("a", "2"), ("b", "1")):
            registry = add_model(registry, ModelVersion(name, version, "doubles"))
        registry = add_links(registry, "app", links) if links else registry
        self.served = ServedApplication(registry.applications["app"], ApplicationMetrics(0.0))
        self.arms = Arms(lambda: 0.5)
        models = {key: ServedModel(*key.split(":"), 0.0) for key in registry.models}
        self.arms.configure(registry, [self.served], models)

    def query(self, choice: Choice, **outputs: bytes) -> Query:
        query = Query(7, self.served, 0.0, lambda _: None)
        query.choice, query.failure = choice, "too late"
        query.outputs = {f"{name}:1": output for name, output in outputs.items()}
        return query


def test_the_newest_version_of_each_linked_model_is_asked() -> None:
    world = World()
    assert set(world.arms.choose(world.served, "").weights) == {"a:2", "b:1"}
    nobody = World(links=())
    assert nobody.arms.choose(nobody.served, "") == NOBODY


def test_a_version_that_is_named_has_to_be_one_of_the_only_model() -> None:
    world = World(policy="single", links=("a",))
    assert world.arms.version(world.served, "1") == Choice({"a:1": 1.0})
    with pytest.raises(LepaError, match="Requested version: 9 does not exist for model: a"):
        world.arms.version(world.served, "9")
    several = World()
    with pytest.raises(LepaError, match="Too many models linked to application app"):
        several.arms.version(several.served, "1")


def test_outputs_come_to_one_answer_or_the_default_says_why() -> None:
    world = World(options=PolicyOptions(confidence_min=0.9))
    both = Choice({"a:1": 1.0, "b:1": 1.0})
    assert combined(world.query(both)) == Answer(7, b"0", "too late")
    assert combined(world.query(Choice({"a:1": 1.0}), a=b"5")) == Answer(7, b"5", "")
    assert combined(world.query(both, a=b"5", b=b"5")).output == b"5"
    doubtful = combined(world.query(both, a=b"5", b=b"6"))
    assert (doubtful.output, doubtful.explanation) == (b"0", arms.DOUBTFUL.format(0.5, 0.9))


def test_a_judged_arm_without_an_answer_loses_all_and_no_more_is_kept_than_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(policy="exp4")
    query = world.query(Choice({"a:1": 1.0, "b:1": 1.0}), a=b"5")
    assert world.arms.judge(query, 5.0) == Answer(7, b"1", "")
    assert world.arms.observations == [Observation("app", "", {"a:1": Loss(0.0), "b:1": Loss(1.0)})]
    monkeypatch.setattr(arms, "OBSERVATIONS_MAX", 1)
    assert world.arms.judge(query, 5.0) == Answer(7, b"0", "")
    assert world.arms.judge(world.query(NOBODY), 5.0) == Answer(7, b"0", "")
