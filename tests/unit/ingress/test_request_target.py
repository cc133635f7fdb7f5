import pytest

from lepa.ingress.request_target import written_target
from lepa.ingress.route_spec import PLAIN, Options


@pytest.mark.parametrize(
    ("target", "options", "written", "stripped"),
    [
        (b"/a/b?c", PLAIN, b"/a/b?c", ""),
        (b"/a/b?c", Options(strip=("/a",)), b"/b?c", "/a"),
        (b"/a", Options(strip=("/a",)), b"/", "/a"),
        (b"/ab", Options(strip=("/a",)), b"/b", "/a"),
        (b"/a?x", Options(strip=("/a",)), b"/?x", "/a"),
        (b"/other", Options(strip=("/a",)), b"/other", ""),
        (b"/b/x", Options(strip=("/a", "/b")), b"/x", "/b"),
        (b"/x", Options(prepend="/v1"), b"/v1/x", ""),
        (b"/a/x?y=%2f", Options(strip=("/a",), prepend="/v1"), b"/v1/x?y=%2f", "/a"),
        (b"/%61/x%20y", Options(strip=("/a",)), b"/x%20y", "/a"),
        (b"/z/../a/x", Options(strip=("/a",)), b"/x", "/a"),
        (b"/a/%2F%3F", Options(strip=("/a",)), b"/%2F%3F", "/a"),
        (b"*", Options(prepend="/v1"), b"/v1/*", ""),
        (b"/\xe4", Options(strip=("/a",)), b"/\xe4", ""),
    ],
)
def test_the_path_for_a_target(target: bytes, options: Options, written: bytes, stripped: str) -> None:
    assert written_target(target, options) == (written, stripped)
