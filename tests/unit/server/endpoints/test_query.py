"""What reads watch."""

from lepa.rpc.requests import ReadRequest
from lepa.server.endpoints import query
from lepa.state.tables import Watch


def test_watches_name_what_the_answer_depends_on() -> None:
    request = ReadRequest(id="x", namespace="blue")
    assert query.table("jobs", "allocs")(request) == (Watch("jobs"), Watch("allocs"))
    assert query.row("nodes")(request) == (Watch("nodes", "id", "x"),)
    assert query.group("allocs", "node")(request) == (Watch("allocs", "node", "x"),)
    assert query.job_row("jobs")(request) == (Watch("jobs", "id", ("blue", "x")),)
    assert query.job_group("evals")(request) == (Watch("evals", "job", ("blue", "x")),)
    assert query.namespace_of(ReadRequest()) == "default"
