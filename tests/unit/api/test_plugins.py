"""Routes of storage plugins."""


async def test_there_are_no_storage_plugins(http) -> None:
    for path in ("/v1/plugins", "/v1/plugins?type=csi"):
        answer = await http.get(path)
        assert (answer.status, await answer.json()) == (200, [])
    assert (await http.get("/v1/plugins?type=x")).status == 404
    answer = await http.get("/v1/plugin/csi/ebs")
    assert (answer.status, await answer.text()) == (404, "plugin not found")
