import uuid

import pytest
from tests.calls import refusal, value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('md5("a")', "0cc175b9c0f1b6a831c399e269772661"),
        ('sha1("a")', "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8"),
        ('sha256("a")', "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"),
        ('substr(sha512("a"), 0, 8)', "1f40fc92"),
    ],
)
def test_digest(text: str, expected: str) -> None:
    assert value(text) == expected


@pytest.mark.parametrize("name", ["kadalu.io", "", "é"])
def test_a_uuid_of_a_name_is_that_of_the_standard(name: str) -> None:
    assert value(f'uuidv5("dns", "{name}")') == str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
    assert value(f'uuidv5("{uuid.NAMESPACE_URL}", "{name}")') == str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def test_a_namespace_that_is_none_is_refused() -> None:
    assert '"x" is neither dns, url, oid, x500 nor a UUID' in refusal('uuidv5("x", "y")')
