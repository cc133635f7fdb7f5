"""Routes of Nomad's Enterprise edition."""

import pytest

from lepa.api.enterprise import PATHS


@pytest.mark.parametrize("path", PATHS)
async def test_an_enterprise_route_answers_as_the_community_edition(http, path: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        answer = await http.request(method, f"/v1/{path.format(name='x', id='x')}")
        assert (answer.status, await answer.text()) == (501, "Nomad Enterprise only endpoint")


async def test_there_is_no_licence(http) -> None:
    assert (await http.get("/v1/operator/license")).status == 204
    answer = await http.put("/v1/operator/license", data=b"key")
    assert (answer.status, await answer.text()) == (501, "Nomad Enterprise only endpoint")


async def test_no_task_has_a_schedule(http) -> None:
    answer = await http.put("/v1/client/allocation/a/pause", json={"Task": "web"})
    assert answer.status == 501


async def test_nothing_is_left_behind_by_vaults_tokens(http) -> None:
    found = await (await http.get("/v1/operator/upgrade-check/vault-workload-identity")).json()
    assert found == {"JobsWithoutVaultIdentity": [], "OutdatedNodes": [], "VaultTokens": []}
