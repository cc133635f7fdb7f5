"""Pure: what the contexts of all applications have learned: the one place where query frontends' feedback meets.

Query frontends tell what arms have lost; each observation changes the state of its application, and of its user where
the application knows users (a new user begins with what the application knows). Revisions count up, so that a frontend
asks for what has changed since it asked last.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from lepa.serving.records import Registry
from lepa.serving.selection import Observation, SelectionState, learn, selection_policy

CONTEXTS_MAX = 10_000
"""Users that one application remembers; the one who was silent for longest is forgotten first."""

Key = tuple[str, str]
"""Application and context."""


class SelectionUpdate(Struct, frozen=True):
    """States that have changed. whole: these are all there are; whatever else is known is to be forgotten."""

    revision: int
    whole: bool
    states: tuple[SelectionState, ...]


class Learned(NamedTuple):
    """What has to be kept and what has to be dropped after some observations."""

    changed: list[SelectionState]
    dropped: list[Key]


class SelectionMemory:
    """See the module. The states of one application stand in the order in which they changed."""

    def __init__(self, states: Iterable[SelectionState] = ()) -> None:
        self._applications: dict[str, dict[str, SelectionState]] = {}
        self.revision = 0
        self._whole_since = 0
        for state in sorted(states, key=lambda state: state.revision):
            self._applications.setdefault(state.application, {})[state.context] = state
            self.revision = max(self.revision, state.revision)

    def get(self, application: str, context: str) -> SelectionState | None:
        """The state of a user, or of the application while he has none of his own."""
        states = self._applications.get(application, {})
        return states.get(context) or states.get("")

    def observe(self, observations: Sequence[Observation], registry: Registry) -> Learned:
        """Learn. Observations of applications that are gone, or do not learn, are passed over."""
        changed: dict[Key, SelectionState] = {}
        dropped: list[Key] = []
        self.revision += 1
        for observation in observations:
            app = registry.applications.get(observation.application)
            if app is None or not selection_policy(app.policy).learns:
                continue
            contexts = dict.fromkeys(("", observation.context))
            before = {context: self.get(app.name, context) for context in contexts}
            for context, state in before.items():
                arms = {key: arm for key, arm in state.arms.items() if key in registry.models} if state else {}
                after = learn(arms, observation.losses, app.policy_options)
                changed[app.name, context] = SelectionState(app.name, context, after, self.revision)
                dropped += self._put(changed[app.name, context])
        return Learned([state for key, state in changed.items() if key not in dropped], dropped)

    def _put(self, state: SelectionState) -> list[Key]:
        states = self._applications.setdefault(state.application, {})
        states.pop(state.context, None)
        states[state.context] = state
        if len(states) <= CONTEXTS_MAX:
            return []
        silent = next(context for context in states if context)
        del states[silent]
        return [(state.application, silent)]

    def forget(self, application: str) -> bool:
        """An application is gone; False when it had learned nothing."""
        if not self._applications.pop(application, None):
            return False
        self.revision += 1
        self._whole_since = self.revision
        return True

    def since(self, index: int) -> SelectionUpdate:
        """What has changed after revision `index`; everything for one that this memory has not given."""
        whole = not self._whole_since <= index <= self.revision
        states = [state for states in self._applications.values() for state in states.values()]
        return SelectionUpdate(self.revision, whole, tuple(s for s in states if whole or s.revision > index))
