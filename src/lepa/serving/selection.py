"""Pure: which of an application's models answer a query, and how their outputs become one.

A policy is asked twice. `select` names models when the query opens; `combine` makes one output of whatever has arrived,
when all have answered or at the deadline. What a policy learns from feedback it keeps in itself.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from lepa.model.errors import invalid


class Combined(NamedTuple):
    """One output (JSON) made of the models' outputs. confidence: share of the asked models that agree with it."""

    output: bytes
    confidence: float


class SelectionPolicy(Protocol):
    """How an application uses its models."""

    def select(self, models: Sequence[str]) -> Sequence[str]:
        """The models to ask, out of those linked. Empty: the default output is the answer."""

    def combine(self, outputs: Mapping[str, bytes], asked: int) -> Combined | None:
        """One output of those that `asked` models gave so far, by model name; None: the default output."""


class SingleModel:
    """The first linked model answers; without its output there is none. Clipper's DefaultOutputSelectionPolicy."""

    def select(self, models: Sequence[str]) -> Sequence[str]:
        return models[:1]

    def combine(self, outputs: Mapping[str, bytes], asked: int) -> Combined | None:
        for output in outputs.values():
            return Combined(output, 1.0)
        return None


POLICIES = {"DefaultOutputSelectionPolicy": SingleModel}
"""By the name an application is registered with."""


def selection_policy(name: str) -> SelectionPolicy:
    """A fresh policy of that name. Raises LepaError(invalid) for an unknown one."""
    factory = POLICIES.get(name)
    if factory is None:
        raise invalid(f"{name} is an invalid selection_policy.")
    return factory()
