"""The description of the API: every route, sound references, and what the wire types say."""

import json
import re
from typing import Any

from lepa.api.app import ROUTES
from lepa.api.jobs import OF_ONE_JOB
from lepa.api.openapi import document, operations
from lepa.rpc.methods import METHODS

DOCUMENT = document(ROUTES)


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(references(item) for item in value.values()))
    return set().union(*(references(item) for item in value)) if isinstance(value, list) else set()


def test_every_route_and_verb_is_described_once() -> None:
    wanted = {
        (verb, f"/v1/{route.path}") for route in ROUTES for verb in route.verbs.split() if route.path != "job/{tail:.+}"
    }
    wanted = {(verb, re.sub(r"\{(\w+):[^}]*\}", r"{\1}", path)) for verb, path in wanted}
    wanted |= {(verb, f"/v1/job/{{id}}/{suffix}".rstrip("/")) for verb, suffix in OF_ONE_JOB}
    found = {(verb.upper(), path) for path, verbs in DOCUMENT["paths"].items() for verb in verbs}
    assert wanted - found == set()
    ids = [each["operationId"] for verbs in DOCUMENT["paths"].values() for each in verbs.values()]
    assert len(ids) == len(set(ids))


def test_references_lead_somewhere_and_names_in_paths_are_parameters() -> None:
    schemas = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert references(DOCUMENT) <= schemas
    for path, verbs in DOCUMENT["paths"].items():
        for operation in verbs.values():
            given = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert given == set(re.findall(r"\{(\w+)\}", path)), path
            assert operation["summary"], path


def test_bodies_and_answers_have_the_types_of_the_calls() -> None:
    register = DOCUMENT["paths"]["/v1/jobs"]["put"]
    assert register["requestBody"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/JobRegisterRequest"
    }
    assert register["x-lepa-method"] == "Job.Register"
    job = DOCUMENT["components"]["schemas"]["Job"]
    assert job["properties"]["ParameterizedJob"]["anyOf"]
    listed = DOCUMENT["paths"]["/v1/jobs"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert listed["items"] == {"$ref": "#/components/schemas/JobListStub"}
    names = {each["name"] for each in DOCUMENT["paths"]["/v1/jobs"]["get"]["parameters"]}
    assert {"index", "wait", "filter", "per_page", "namespace", "meta"} <= names


def test_methods_that_have_a_path_are_those_of_the_table() -> None:
    said = {each.takes.method.name for each in operations(ROUTES) if each.takes.method is not None}
    assert said <= set(METHODS)
    assert {"Job.Explain", "Job.Tag", "Evaluation.Delete", "Node.Purge", "Search.Fuzzy"} <= said


async def test_it_is_served(http) -> None:
    answer = await http.get("/v1/openapi.json")
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert json.loads(await answer.read())["openapi"] == "3.1.0"
