"""lepa.serving.selection_memory"""

import pytest

from lepa.serving import selection_memory
from lepa.serving.records import Application, ModelVersion, Registry, add_application, add_model
from lepa.serving.selection import Loss, Observation, PolicyOptions
from lepa.serving.selection_memory import SelectionMemory


def registry() -> Registry:
    options = PolicyOptions(contexts="user")
    found = add_application(Registry(), Application("learns", "ints", "0", 1000, (), "exp4", options))
    found = add_application(found, Application("plain", "ints", "0", 1000))
    for version in ("1", "2"):
        found = add_model(found, ModelVersion("m", version, "ints"))
    return found


def seen(context: str = "", application: str = "learns", right: str = "m:1") -> Observation:
    return Observation(application, context, {arm: Loss(float(arm != right)) for arm in ("m:1", "m:2")})


def test_feedback_of_a_user_teaches_him_and_the_application() -> None:
    memory = SelectionMemory()
    learned = memory.observe([seen("7"), seen("7")], registry())
    assert [state.context for state in learned.changed] == ["", "7"]
    state = memory.get("learns", "7")
    assert state is not None
    assert state.arms["m:1"].weight > state.arms["m:2"].weight
    assert memory.get("learns", "8") == memory.get("learns", "")


def test_what_does_not_learn_and_who_is_unknown_is_passed_over() -> None:
    memory = SelectionMemory()
    assert memory.observe([seen(application="plain"), seen(application="gone")], registry()).changed == []


def test_a_frontend_gets_what_has_changed_and_everything_when_it_is_lost() -> None:
    memory = SelectionMemory()
    memory.observe([seen("7")], registry())
    first = memory.since(-1)
    assert (first.whole, len(first.states)) == (True, 2)
    memory.observe([seen()], registry())
    update = memory.since(first.revision)
    assert (update.whole, [state.context for state in update.states]) == (False, [""])
    assert memory.since(99).whole
    assert memory.forget("learns")
    assert memory.since(update.revision) == selection_memory.SelectionUpdate(3, True, ())
    assert not memory.forget("learns")


def test_states_and_their_revision_survive_a_restart() -> None:
    memory = SelectionMemory()
    changed = memory.observe([seen("7")], registry()).changed
    again = SelectionMemory(reversed(changed))
    assert again.revision == memory.revision
    assert again.get("learns", "7") == memory.get("learns", "7")


def test_arms_that_are_no_longer_registered_are_forgotten() -> None:
    memory = SelectionMemory()
    memory.observe([seen()], registry())
    (state,) = memory.observe(
        [Observation("learns", "", {"m:2": Loss(0.0)})],
        Registry(9, registry().applications, {"m:2": registry().models["m:2"]}),
    ).changed
    assert list(state.arms) == ["m:2"]


def test_the_user_who_was_silent_for_longest_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection_memory, "CONTEXTS_MAX", 3)
    memory = SelectionMemory()
    for user in ("1", "2", "1"):
        memory.observe([seen(user)], registry())
    learned = memory.observe([seen("3")], registry())
    assert learned.dropped == [("learns", "2")]
    assert [state.context for state in learned.changed] == ["", "3"]
