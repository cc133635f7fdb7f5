"""What holds for every wire type of the vocabulary."""

import importlib
import inspect
from typing import Any

import msgspec
import pytest

from lepa.model.wire import Wire, from_json, from_msgpack, to_json, to_msgpack

MODULES = (
    "lepa.model.allocation",
    "lepa.model.constraint",
    "lepa.model.deployment",
    "lepa.model.evaluation",
    "lepa.model.identity",
    "lepa.model.job",
    "lepa.model.job_views",
    "lepa.model.node",
    "lepa.model.operator",
    "lepa.model.plan",
    "lepa.model.policies",
    "lepa.model.resources",
    "lepa.model.service",
    "lepa.model.stats",
    "lepa.model.task",
    "lepa.model.tenancy",
    "lepa.rpc.requests",
    "lepa.rpc.node_service",
)
TYPES = [
    kind
    for module in MODULES
    for kind in vars(importlib.import_module(module)).values()
    if inspect.isclass(kind) and issubclass(kind, Wire) and kind.__module__ == module
]


def has_defaults(kind: type[Wire]) -> bool:
    return all(not field.required for field in msgspec.structs.fields(kind))


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
def test_type_is_frozen_and_says_what_it_is(kind: type[Wire]) -> None:
    assert kind.__struct_config__.frozen
    assert kind.__doc__


@pytest.mark.parametrize("kind", [k for k in TYPES if has_defaults(k)], ids=lambda kind: kind.__name__)
def test_empty_value_survives_json_and_msgpack(kind: type[Any]) -> None:
    value = kind()
    assert from_json(to_json(value), kind) == value
    assert from_msgpack(to_msgpack(value), kind) == value


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
def test_keys_differ_even_when_case_does_not_count(kind: type[Wire]) -> None:
    keys = [field.encode_name.lower() for field in msgspec.structs.fields(kind)]
    assert len(keys) == len(set(keys))
