from base64 import b64encode

import pytest

from lepa.ingress.access import knows, may_pass, read_passwords
from lepa.ingress.route_spec import Options

FILE = """
# people
ann:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=
bob:{SSHA}1ZgN8b1CzW3QxeGzsVnhVQmpTm9zYWx0
cid:plain
dan:$apr1$x$y
eve:{SHA256}XohImNooBHFR0OVvjcYpJ3NgPQ1qq73WKhHvch0VQtg=
bad line
fay:{SHA}not base64!
"""


def basic(name: str, password: str) -> bytes:
    return b"Basic " + b64encode(f"{name}:{password}".encode())


@pytest.mark.parametrize(
    ("address", "allow", "deny", "passes"),
    [
        ("10.1.2.3", (), (), True),
        ("10.1.2.3", ("10.0.0.0/8",), (), True),
        ("11.1.2.3", ("10.0.0.0/8",), (), False),
        ("10.1.2.3", (), ("10.1.0.0/16",), False),
        ("10.1.2.3", ("10.0.0.0/8",), ("10.1.2.3/32",), False),
        ("fd00::1", ("fd00::/8",), (), True),
        ("fd00::1", ("10.0.0.0/8",), (), False),
        ("::ffff:10.1.2.3", ("10.0.0.0/8",), (), True),
        ("fe80::1%eth0", ("fe80::/10",), (), True),
        ("nonsense", ("10.0.0.0/8",), (), False),
    ],
)
def test_who_may_pass(address: str, allow: tuple[str, ...], deny: tuple[str, ...], passes: bool) -> None:
    assert may_pass(address, Options(allow=allow, deny=deny)) is passes


@pytest.mark.parametrize(
    ("name", "password", "known"),
    [
        ("ann", "password", True),
        ("ann", "other", False),
        ("cid", "plain", True),
        ("cid", "", False),
        ("dan", "$apr1$x$y", False),
        ("eve", "password", True),
        ("fay", "x", False),
        ("bob", "wrong", False),
        ("nobody", "password", False),
    ],
)
def test_passwords(name: str, password: str, known: bool) -> None:
    assert knows(read_passwords(FILE), basic(name, password)) is known


@pytest.mark.parametrize("header", [b"", b"Basic", b"Basic ###", b"Bearer abc", b"Basic " + b64encode(b"cid")])
def test_other_headers_are_nobodys(header: bytes) -> None:
    assert not knows({"cid": ""}, header)


def test_the_scheme_is_read_without_regard_to_case() -> None:
    assert knows({"a": "b"}, basic("a", "b").replace(b"Basic", b"bAsIc"))


def test_a_colon_may_stand_in_a_password() -> None:
    assert knows({"a": "b:c"}, basic("a", "b:c"))
