"""Pure: which arms of an application are asked, what their outputs come to, and what feedback says of each.

An arm is a registered model version that an application's links lead to. `Arms` knows what contexts have learned, as
the management frontend tells it, and gathers what feedback finds; time, queues and replicas are none of its business.
"""

from collections.abc import Iterable, Mapping
from functools import partial

from lepa.model.errors import invalid
from lepa.serving.records import Registry
from lepa.serving.selection import (
    Chance,
    Choice,
    Loss,
    Observation,
    SelectionState,
    arm_key,
    arms_of,
    combine,
    known_arms,
    loss_of,
    user_chance,
)
from lepa.serving.served import NOBODY, Answer, Query, ServedApplication, ServedModel

DOUBTFUL = "The models do not agree: their confidence is {:.2f}, the least is {:.2f}"
OBSERVATIONS_MAX = 10_000
"""Judged feedbacks that wait to be told to the management frontend; further ones are forgotten."""


class Arms:
    """The arms of all applications of a query frontend. observations: what feedback has found, until it is told."""

    def __init__(self, chance: Chance) -> None:
        self.observations: list[Observation] = []
        self._chance = chance
        self._learned: dict[tuple[str, str], SelectionState] = {}
        self._registry = Registry()

    def configure(
        self, registry: Registry, applications: Iterable[ServedApplication], models: Mapping[str, ServedModel]
    ) -> None:
        """Follow a new registry. models: by key, those that are registered among them."""
        self._registry = registry
        registered, current = registry.models, registry.current
        for served in applications:
            links = served.record.linked_models
            arms = arms_of(served.policy, served.options, links, current)
            shadows = [arm_key(text, links, current) for text in served.options.shadow]
            served.set_arms(
                {key: weight for key, weight in arms.items() if key in registered},
                tuple(models[key] for key in shadows if key in registered),
            )

    def follow(self, states: Iterable[SelectionState]) -> None:
        """Take what contexts have learned."""
        self._learned.update({(state.application, state.context): state for state in states})

    def forget(self) -> None:
        """Forget what contexts have learned: they will be told anew."""
        self._learned.clear()

    def choose(self, served: ServedApplication, user: str) -> Choice:
        """The arms that the application's policy asks for this user, "" for nobody in particular."""
        if not served.arms:
            return NOBODY
        learned = self._learned.get((served.name, user)) or self._learned.get((served.name, ""))
        arms = known_arms(learned, served.arms)
        chance = partial(user_chance, served.name, user) if user and served.policy.steady else self._chance
        return served.policy.choose(arms, served.options, chance)

    def version(self, served: ServedApplication, version: str) -> Choice:
        """A version of the one linked model, for a query that names it. Raises LepaError(invalid)."""
        links = served.record.linked_models
        if len(links) > 1:
            raise invalid(f"Too many models linked to application {served.name}")
        if not links:
            return NOBODY
        key = f"{links[0]}:{version}"
        if key not in self._registry.models:
            raise invalid(f"Requested version: {version} does not exist for model: {links[0]}")
        return Choice({key: 1.0})

    def judge(self, query: Query, label: float | str) -> Answer:
        """Note what each arm loses by its answer; one that did not answer in time loses all. The answer's output is 1
        when that was possible."""
        served, (weights, probability) = query.application, query.choice
        judged = bool(query.outputs) and len(self.observations) < OBSERVATIONS_MAX
        if judged:
            losses = {key: loss_of(query.outputs.get(key), label, served.options) for key in weights}
            context = query.user if served.options.contexts == "user" else ""
            told = {key: Loss(loss, probability) for key, loss in losses.items()}
            self.observations.append(Observation(served.name, context, told))
        return Answer(query.id, b"1" if judged else b"0", "")


def combined(query: Query) -> Answer:
    """What the models' outputs come to."""
    served, outputs, weights = query.application, query.outputs, query.choice.weights
    if not outputs:
        return Answer(query.id, served.default_json, query.failure)
    if len(weights) == 1:
        (output,) = outputs.values()
        return Answer(query.id, output, "")
    least = served.options.confidence_min
    output, confidence = combine(outputs, weights, served.options.combine)
    if confidence < least:
        return Answer(query.id, served.default_json, DOUBTFUL.format(confidence, least), confidence)
    return Answer(query.id, output, "", confidence)
