"""lepa.serving.query and lepa.serving.served"""

import pytest

from lepa.model.errors import LepaError
from lepa.serving import query
from lepa.serving.container_rpc import Failure
from lepa.serving.query import CROWDED, LATE, NO_MODEL, REPLICA_LOST, Predictions
from lepa.serving.records import Application, ModelVersion, Registry, add_application, add_links, add_model
from lepa.serving.selection import ArmState, Loss, Observation, PolicyOptions, SelectionState
from lepa.serving.served import Answer, as_json

SLO_S = 0.1


class Frontend:
    """Drives `Predictions` as the query frontend does, with the time in the test's hand."""

    def __init__(self, cache_bytes: int = 10_000, replicas: int = 1) -> None:
        self.now = 0.0
        self.predictions = Predictions(cache_bytes, self.now, lambda: 0.5)
        registry = add_application(Registry(), Application("app", "bytes", '"none"', int(SLO_S * 1e6)))
        for version in ("1", "2"):
            registry = add_model(registry, ModelVersion("m", version, "bytes"))
        self.registry = add_links(registry, "app", ("m",))
        self.predictions.configure(self.registry, self.now)
        self.replicas = [self.join() for _ in range(replicas)]
        self.answers: list[Answer] = []

    def join(self, version: str = "2") -> int:
        replica = self.predictions.replica_joined("m", version, 0, self.now)
        assert replica is not None
        return replica.id

    def ask(self, data: bytes = b"x", version: str = "") -> None:
        served = self.predictions.applications["app"]
        self.predictions.predict(served, data, version, self.answers.append, self.now)

    def turn(self) -> list[tuple[int, list[bytes]]]:
        orders = self.predictions.dispatch(self.now)
        self.predictions.reply(self.now)
        self.predictions.replied(self.now)
        return [(order.replica, [task.data for task in order.tasks]) for order in orders]

    def answer(self, *outputs: bytes | Failure, replica: int = 0) -> None:
        self.predictions.batch_answered(self.replicas[replica], list(outputs), self.now)
        self.turn()


def test_a_query_goes_to_the_current_version_and_its_output_is_the_answer() -> None:
    frontend = Frontend()
    frontend.ask()
    assert frontend.turn() == [(0, [b"x"])]
    frontend.answer(b"1.5")
    assert frontend.answers == [Answer(0, b"1.5", "")]


def test_without_a_replica_the_default_is_the_answer_at_once() -> None:
    frontend = Frontend(replicas=0)
    frontend.ask()
    assert frontend.answers == [Answer(0, b'"none"', NO_MODEL)]


def test_at_the_deadline_the_default_is_the_answer_and_a_late_output_is_kept_for_the_next() -> None:
    frontend = Frontend()
    frontend.ask()
    frontend.turn()
    assert frontend.predictions.wake_at() == SLO_S
    frontend.now = SLO_S
    frontend.turn()
    assert frontend.answers == [Answer(0, b'"none"', LATE)]
    frontend.answer(b"1")
    frontend.ask()
    assert frontend.answers[1:] == [Answer(1, b"1", "")]


def test_an_output_that_comes_after_the_deadline_is_late_even_if_nobody_noticed_the_deadline() -> None:
    frontend = Frontend()
    frontend.ask()
    frontend.turn()
    frontend.now = 2 * SLO_S
    frontend.answer(b"1")
    assert frontend.answers == [Answer(0, b'"none"', LATE)]


def test_equal_queries_share_one_task() -> None:
    frontend = Frontend()
    frontend.ask()
    frontend.ask()
    assert frontend.turn() == [(0, [b"x"])]
    frontend.answer(b"1")
    assert [answer.output for answer in frontend.answers] == [b"1", b"1"]


def test_without_a_cache_every_query_is_asked() -> None:
    frontend = Frontend(cache_bytes=0, replicas=2)
    frontend.ask()
    frontend.ask()
    assert frontend.turn() == [(0, [b"x"]), (1, [b"x"])]


def test_a_model_that_fails_is_answered_with_the_default_and_its_words() -> None:
    frontend = Frontend()
    frontend.ask()
    frontend.turn()
    frontend.answer(Failure("ValueError: no"))
    assert frontend.answers == [Answer(0, b'"none"', "The model failed: ValueError: no")]


def test_too_few_outputs_fail_the_batch() -> None:
    frontend = Frontend()
    frontend.ask()
    frontend.turn()
    frontend.answer()
    assert frontend.answers[0].explanation == "The model failed: the model gave 0 outputs for 1 inputs"


def test_the_batch_of_a_lost_replica_goes_to_another_one_once() -> None:
    frontend = Frontend(replicas=2)
    frontend.ask()
    assert frontend.turn() == [(0, [b"x"])]
    frontend.predictions.replica_left(0, frontend.now)
    assert frontend.turn() == [(1, [b"x"])]
    frontend.predictions.replica_left(1, frontend.now)
    assert frontend.answers == [Answer(0, b'"none"', REPLICA_LOST)]


def test_queries_that_ran_out_of_time_do_not_let_more_than_one_batch_run_at_a_replica() -> None:
    """B271."""
    frontend = Frontend(cache_bytes=0)
    frontend.ask(b"0")
    assert frontend.turn() == [(0, [b"0"])]
    for number in range(1, 5):
        frontend.now += 2 * SLO_S
        frontend.ask(b"%d" % number)
        assert frontend.turn() == []
    frontend.now += SLO_S
    assert frontend.turn() == []
    assert [answer.explanation for answer in frontend.answers] == [LATE] * 5
    frontend.answer(b"1")
    frontend.ask(b"5")
    assert frontend.turn() == [(0, [b"5"])]


def test_a_version_can_be_asked_for() -> None:
    """B264."""
    frontend = Frontend()
    old = frontend.join(version="1")
    frontend.ask(version="1")
    assert frontend.turn() == [(old, [b"x"])]
    with pytest.raises(LepaError, match="Requested version: 9 does not exist for model: m"):
        frontend.ask(version="9")
    assert frontend.predictions.open_count == 1


def test_versions_that_a_frontend_learns_of_at_once_do_not_share_answers() -> None:
    frontend = Frontend()
    frontend.replicas.append(frontend.join("1"))
    for version, output in (("2", b"2.5"), ("1", b"1.5")):
        frontend.ask(version=version)
        ((replica, data),) = frontend.turn()
        assert data == [b"x"]
        frontend.answer(output, replica=frontend.replicas.index(replica))
        assert frontend.answers[-1].output == output


def test_a_model_that_is_registered_again_does_not_answer_from_the_old_cache() -> None:
    frontend = Frontend()
    frontend.ask()
    frontend.turn()
    frontend.answer(b"1")
    models = {**frontend.registry.models, "m:2": ModelVersion("m", "2", "bytes", created=99)}
    frontend.predictions.configure(Registry(9, frontend.registry.applications, models, {"m": "2"}), frontend.now)
    frontend.ask()
    assert frontend.turn() == [(0, [b"x"])]


def test_open_queries_of_a_removed_application_are_still_answered() -> None:
    frontend = Frontend()
    frontend.ask()
    frontend.predictions.configure(Registry(9), frontend.now)
    frontend.now = SLO_S
    frontend.turn()
    assert frontend.answers == [Answer(0, b'"none"', LATE)]
    assert frontend.predictions.applications == {}


def test_a_model_without_record_is_forgotten_with_its_last_replica() -> None:
    frontend = Frontend()
    frontend.predictions.configure(Registry(9), frontend.now)
    assert list(frontend.predictions.models) == ["m:2"]
    frontend.predictions.replica_left(0, frontend.now)
    assert frontend.predictions.models == {}


def test_too_many_open_queries_get_the_default_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "OPEN_MAX", 1)
    frontend = Frontend()
    frontend.ask(b"a")
    frontend.ask(b"b")
    assert frontend.answers == [Answer(1, b'"none"', CROWDED)]
    assert frontend.predictions.open_count == 1


def test_too_many_replicas_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "REPLICAS_MAX", 1)
    frontend = Frontend()
    assert frontend.predictions.replica_joined("m", "2", 0, 0.0) is None


def test_replicas_are_numbered_within_their_version_and_numbers_are_not_used_again() -> None:
    frontend = Frontend(replicas=2)
    frontend.predictions.replica_left(1, 0.0)
    frontend.join()
    assert [c.model_replica_id for c in frontend.predictions.containers()] == [0, 2]
    assert frontend.predictions.containers()[0].input_type == "bytes"


def test_outputs_that_are_json_stay_json_and_others_become_strings() -> None:
    assert as_json(b"[1, 2]") == b"[1, 2]"
    assert as_json(b"cat") == b'"cat"'
    assert as_json(b"NaN") == b'"NaN"'
    assert as_json(b"\xff") == '"\ufffd"'.encode()
    assert as_json(b"[" * 100_000)[:2] == b'"['


def test_what_happens_is_counted() -> None:
    frontend = Frontend()
    frontend.ask()
    frontend.turn()
    frontend.answer(b"1")
    frontend.ask()
    frontend.predictions.tick(10.0)
    found = {name: metric.report(10.0) for name, metric in frontend.predictions.metrics()}
    assert found["internal:aggregate_num_predictions"] == {"count": "2"}
    assert found["app:app:num_predictions"] == {"count": "2"}
    assert found["model:m:2:num_predictions"] == {"count": "1"}
    assert found["model:m:2:cache_hit_ratio"] == {"ratio": "0.5"}
    assert found["app:app:default_prediction_ratio"] == {"ratio": "0.0"}


class Several(Frontend):
    """An application with the models a, b and c, one replica each."""

    def __init__(self, policy: str, options: PolicyOptions | None = None, links: tuple[str, ...] = ("a", "b", "c")):
        self.now = 0.0
        self.predictions = Predictions(0, self.now, lambda: 0.5)
        app = Application("app", "bytes", '"none"', int(SLO_S * 1e6), (), policy, options or PolicyOptions())
        registry = add_application(Registry(), app)
        for name in ("a", "b", "c"):
            registry = add_model(registry, ModelVersion(name, "1", "bytes"))
        self.registry = add_links(registry, "app", links)
        self.predictions.configure(self.registry, self.now)
        self.replicas = []
        for name in ("a", "b", "c"):
            replica = self.predictions.replica_joined(name, "1", 0, self.now)
            assert replica is not None
            self.replicas.append(replica.id)
        self.answers: list[Answer] = []

    def judge(self, label: float, user: str = "") -> None:
        served = self.predictions.applications["app"]
        self.predictions.feedback(served, b"x", label, self.answers.append, self.now, user)


def test_an_ensemble_asks_every_model_and_tells_its_confidence() -> None:
    frontend = Several("majority")
    frontend.ask()
    assert [replica for replica, _ in frontend.turn()] == [0, 1, 2]
    frontend.answer(b"1", replica=0)
    frontend.answer(b"2", replica=1)
    assert frontend.answers == []
    frontend.answer(b"2", replica=2)
    assert frontend.answers == [Answer(0, b"2", "", 2 / 3)]


def test_at_the_deadline_an_ensemble_answers_with_what_has_arrived() -> None:
    frontend = Several("majority")
    frontend.ask()
    frontend.turn()
    frontend.answer(b"2", replica=1)
    frontend.now = SLO_S
    frontend.turn()
    assert frontend.answers == [Answer(0, b"2", "", 1 / 3)]
    frontend.answer(b"2", replica=2)
    assert len(frontend.answers) == 1


def test_an_ensemble_without_confidence_gives_the_default_and_says_so() -> None:
    frontend = Several("majority", PolicyOptions(confidence_min=0.9))
    frontend.ask()
    frontend.turn()
    for replica, output in enumerate((b"1", b"2", b"2")):
        frontend.answer(output, replica=replica)
    assert frontend.answers[0].output == b'"none"'
    assert "confidence is 0.67, the least is 0.90" in frontend.answers[0].explanation


def test_feedback_judges_the_arms_and_is_told() -> None:
    frontend = Several("exp4", PolicyOptions(contexts="user"))
    frontend.judge(2.0, user="7")
    frontend.turn()
    for replica, output in enumerate((b"1", b"2", b"3")):
        frontend.answer(output, replica=replica)
    losses = {"a:1": Loss(1.0), "b:1": Loss(0.0), "c:1": Loss(1.0)}
    assert frontend.predictions.arms.observations == [Observation("app", "7", losses)]
    assert frontend.answers == [Answer(0, b"1", "")]
    assert frontend.predictions.applications["app"].metrics.throughput.count == 0


def test_feedback_that_no_model_answers_in_time_is_not_learned() -> None:
    frontend = Several("exp3")
    frontend.judge(2.0)
    frontend.turn()
    frontend.now = SLO_S
    frontend.turn()
    assert frontend.answers == [Answer(0, b"0", "")]
    assert frontend.predictions.arms.observations == []


def test_feedback_to_a_policy_that_does_not_learn_is_received() -> None:
    frontend = Several("majority")
    frontend.judge(1.0)
    assert frontend.turn() == []
    assert frontend.answers == [Answer(0, b"1", "")]


def test_queries_follow_what_was_learned_for_their_user_or_for_all() -> None:
    frontend = Several("exp3")
    everybody = {"a:1": ArmState(0.0001), "b:1": ArmState(0.0001), "c:1": ArmState(0.9998)}
    one = {"a:1": ArmState(0.9998), "b:1": ArmState(0.0001), "c:1": ArmState(0.0001)}
    frontend.predictions.arms.follow([SelectionState("app", "", everybody), SelectionState("app", "7", one)])
    served = frontend.predictions.applications["app"]
    for user, replica in (("", 2), ("7", 0), ("8", 2)):
        frontend.predictions.predict(served, b"x", "", frontend.answers.append, frontend.now, user)
        assert frontend.turn() == [(replica, [b"x"])]
        frontend.answer(b"1", replica=replica)
    frontend.predictions.arms.forget()
    frontend.ask()
    assert frontend.turn() == [(1, [b"x"])]


def test_a_shadow_is_asked_and_compared_and_holds_nobody_up() -> None:
    frontend = Several("canary", PolicyOptions(canary="a:1", shadow=("a", "b:1")), links=("a",))
    assert frontend.predictions.applications["app"].shadows == ()
    frontend = Several("majority", PolicyOptions(shadow=("c",)), links=("a", "b", "c"))
    assert frontend.predictions.applications["app"].shadows == ()
    frontend = Several("split", PolicyOptions(weights={"a": 1}, shadow=("b", "c")))
    frontend.ask()
    assert [replica for replica, _ in frontend.turn()] == [0, 1, 2]
    frontend.answer(b"2", replica=1)
    assert frontend.answers == []
    frontend.answer(b"2", replica=0)
    assert frontend.answers == [Answer(0, b"2", "")]
    frontend.answer(b"3", replica=2)
    found = {name: metric.report(0.0) for name, metric in frontend.predictions.metrics()}
    assert found["model:b:1:shadow_agreement"] == {"ratio": "1.0"}
    assert found["model:c:1:shadow_agreement"] == {"ratio": "0.0"}
    assert frontend.predictions.open_count == 0
