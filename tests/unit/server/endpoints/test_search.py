"""Finding things."""

import pytest
from tests.builders import make_alloc, make_eval, make_group, make_job, make_node, make_task, uuid_of
from tests.world import World

from lepa.model.errors import LepaError
from lepa.rpc.requests import SearchRequest
from lepa.server.acl.access import ALL
from lepa.server.endpoints.search import search_fuzzy, search_prefix
from lepa.server.settings import SearchSettings


def busy() -> World:
    world = World()
    task = make_task("server", config={"image": "nginx:1", "command": "/bin/run"})
    job = world.job(make_job("shop-web", groups=(make_group("front", tasks=(task,)),)))
    world.job(make_job("shop-blue", namespace="blue"))
    world.node(make_node(uuid_of(1), name="rack-1", node_class="gpu"))
    world.put_alloc(make_alloc(uuid_of(2), job=job))
    world.put_eval(make_eval(uuid_of(3), job=job))
    return world


def test_every_beginning_of_an_id_finds_it() -> None:
    """B151."""
    world = busy()
    alloc_id = uuid_of(2)
    for length in range(1, 37):
        request = SearchRequest(prefix=alloc_id[:length], context="allocs")
        assert alloc_id in search_prefix(world.snapshot, request, ALL).matches["allocs"]
    assert search_prefix(world.snapshot, SearchRequest(prefix=alloc_id + "x" * 4), ALL).matches["allocs"] == []


def test_a_prefix_longer_than_any_id_finds_names() -> None:
    """B152."""
    world = busy()
    name = "a-job-with-a-name-that-is-longer-than-any-uuid"
    world.job(make_job(name))
    for prefix, jobs in ((name[:40], [name]), ("x" * 40, []), (uuid_of(2) + "-abc", [])):
        assert len(prefix) == 40
        found = search_prefix(world.snapshot, SearchRequest(prefix=prefix, context="all"), ALL)
        assert {context: ids for context, ids in found.matches.items() if ids} == ({"jobs": jobs} if jobs else {})


def test_all_contexts_are_searched_unless_one_is_named() -> None:
    found = search_prefix(busy().snapshot, SearchRequest(prefix="shop"), ALL)
    assert found.matches["jobs"] == ["shop-web"]
    assert found.matches["nodes"] == []
    assert set(found.matches) == set(found.truncations)
    everywhere = search_prefix(busy().snapshot, SearchRequest(prefix="shop", namespace="*", context="jobs"), ALL)
    assert everywhere.matches == {"jobs": ["shop-blue", "shop-web"]}
    with pytest.raises(LepaError, match="context must be one of"):
        search_prefix(busy().snapshot, SearchRequest(context="planets"), ALL)


def test_many_matches_are_cut_and_it_is_said() -> None:
    world = World()
    for number in range(25):
        world.job(make_job(f"job-{number:02}"))
    found = search_prefix(world.snapshot, SearchRequest(prefix="job", context="jobs"), ALL)
    assert (len(found.matches["jobs"]), found.truncations["jobs"]) == (20, True)


def test_an_operator_sets_how_much_is_told_and_whether_at_all() -> None:
    world = World()
    for number in range(5):
        world.job(make_job(f"job-{number}"))
    few = SearchSettings(limit_query=3, limit_results=2, min_term_length=3)
    found = search_prefix(world.snapshot, SearchRequest(prefix="job", context="jobs"), ALL, few)
    assert (len(found.matches["jobs"]), found.truncations["jobs"]) == (3, True)
    fuzzy = search_fuzzy(world.snapshot, SearchRequest(text="ob-", context="jobs"), ALL, few)
    assert (len(fuzzy.matches["jobs"]), fuzzy.truncations["jobs"]) == (2, True)
    with pytest.raises(LepaError, match="at least 3 characters, got 2"):
        search_fuzzy(world.snapshot, SearchRequest(text="jo"), ALL, few)
    with pytest.raises(LepaError, match="fuzzy search is not enabled"):
        search_fuzzy(world.snapshot, SearchRequest(text="job"), ALL, SearchSettings(fuzzy_enabled=False))


def test_a_part_of_a_name_is_enough_for_a_fuzzy_search() -> None:
    world = busy()
    found = search_fuzzy(world.snapshot, SearchRequest(text="web"), ALL)
    assert found.matches["jobs"] == [{"ID": "shop-web", "Scope": ["default", "shop-web"]}]
    assert found.matches["allocs"][0]["Scope"] == ["default", uuid_of(2)]
    one = search_fuzzy(world.snapshot, SearchRequest(text="NGINX", context="images"), ALL)
    assert one.matches["images"] == [{"ID": "nginx:1", "Scope": ["default", "shop-web", "front", "server"]}]
    assert search_fuzzy(world.snapshot, SearchRequest(text="rack"), ALL).matches["nodes"][0]["ID"] == "rack-1"
    assert search_fuzzy(world.snapshot, SearchRequest(text="gp"), ALL).matches["classes"] == [
        {"ID": "gpu", "Scope": []}
    ]
    assert search_fuzzy(world.snapshot, SearchRequest(text="front"), ALL).matches["groups"][0]["ID"] == "front"


def test_ids_without_names_are_found_by_their_beginning_in_a_fuzzy_search_too() -> None:
    found = search_fuzzy(busy().snapshot, SearchRequest(text=uuid_of(3)[:6], context="evals"), ALL)
    assert found.matches["evals"] == [{"ID": uuid_of(3), "Scope": []}]


def test_a_text_of_one_letter_is_too_short() -> None:
    with pytest.raises(LepaError, match="must be at least 2 characters, got 1"):
        search_fuzzy(busy().snapshot, SearchRequest(text="w"), ALL)
