"""A saved state without its secrets."""

from tests.builders import make_job, make_node

from lepa.model.acl import AclToken, AuthMethod, AuthMethodConfig, OneTimeToken, RootKey
from lepa.model.volume import CSIVolume
from lepa.model.wire import Wire, from_msgpack, to_msgpack
from lepa.state.keys import KINDS
from lepa.state.redaction import redacted
from lepa.store.protocol import Entry

SECRET = "f00d-beef"


def entry(key: str, value: Wire) -> Entry:
    return Entry(key, to_msgpack(value), 3, 4)


def test_no_secret_is_left_and_everything_else_is_as_it_was() -> None:
    job = entry("jobs/default/web", make_job())
    given = [
        entry("acl_auth_methods/x", AuthMethod(name="x", config=AuthMethodConfig(oidc_client_secret=SECRET))),
        entry("acl_one_time/1", OneTimeToken(one_time_secret_id=SECRET)),
        entry("acl_tokens/a", AclToken(accessor_id="a", secret_id=SECRET)),
        entry("csi_volumes/default/v", CSIVolume(id="v", secrets={"password": SECRET})),
        job,
        entry("keyring/k", RootKey()),
        entry("nodes/n", make_node("n", secret_id=SECRET)),
    ]
    left = list(redacted(given))
    assert [each.key for each in left] == [
        "acl_auth_methods/x",
        "acl_tokens/a",
        "csi_volumes/default/v",
        "jobs/default/web",
        "nodes/n",
    ]
    assert not any(SECRET.encode() in each.value for each in left)
    assert job in left
    for each in left:
        assert (each.created, each.modified) == (3, 4)
        assert from_msgpack(each.value, KINDS[each.key.partition("/")[0]])
