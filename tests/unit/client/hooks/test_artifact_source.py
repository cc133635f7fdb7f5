"""Sources as job files write them."""

import pytest

from lepa.client.hooks.artifact_source import Source, source_of
from lepa.model.errors import LepaError
from lepa.model.task import TaskArtifact

SHA = "a" * 64


def source(text: str, mode: str = "any", **options: str) -> Source:
    return source_of(TaskArtifact(getter_source=text, getter_mode=mode, getter_options=options), {"meta.v": "1.2"})


def test_urls() -> None:
    assert source("http://h/${meta.v}/x.txt") == Source("http", "http://h/1.2/x.txt", file_name="x.txt")
    assert source("https://h/a.tar.gz").archive == "tar.gz"
    assert source("https://h/a.tar.gz", archive="false").archive == ""
    assert source("https://h/a", archive="zip").archive == "zip"
    assert source("https://h/a.zip", mode="file").archive == ""
    assert source("https://h/").file_name == "index.html"
    assert source("https://h/a?x=1&filename=b.sh&y=2") == Source("http", "https://h/a?x=1&y=2", file_name="b.sh")


def test_a_part_of_an_archive() -> None:
    found = source("https://h/a.zip//sub/dir?archive=zip")
    assert (found.url, found.subdirectory) == ("https://h/a.zip", "sub/dir")


@pytest.mark.parametrize("text", [f"sha256:{SHA}", SHA, f"sha256:{SHA.upper()}"])
def test_checksums(text: str) -> None:
    found = source("https://h/x", checksum=text)
    assert (found.checksum_type, found.checksum) == ("sha256", SHA)
    assert source(f"https://h/x?checksum={text}").checksum == SHA


def test_repositories() -> None:
    assert source("git::https://h/r.git?ref=v1&depth=3") == Source("git", "https://h/r.git", ref="v1", depth="3")
    assert source("git::/srv/r").url == "file:///srv/r"
    assert source("git::git@h:o/r.git").url == "git@h:o/r.git"
    assert source("https://h/r.git").kind == "git"
    found = source("github.com/o/r//sub?ref=main")
    assert (found.kind, found.url, found.subdirectory, found.ref) == ("git", "https://github.com/o/r", "sub", "main")


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("s3::https://h/x", {}, "names no bucket"),
        ("/etc/passwd", {}, "use an http"),
        ("file:///etc/passwd", {}, "use an http"),
        ("git::ext::sh -c id", {}, "git cannot fetch"),
        ("git::ext://sh", {}, "git cannot fetch"),
        ("https://h/x", {"checksum": "sha256:abc"}, "checksum"),
        ("https://h/x", {"checksum": "crc:abc"}, "checksum"),
        ("https://h/x", {"archive": "rar"}, "rar"),
        ("https://h/x", {"filename": "../x"}, "file name"),
        ("https://h/x//sub", {}, "needs an archive"),
        ("https://h/x.zip//a/../../b", {}, "leads outside"),
        ("git::https://h/r", {"ref": "--upload-pack=id"}, "ref"),
        ("git::https://h/r", {"depth": "x"}, "depth"),
        ("git::ssh://-oProxyCommand=id/r", {}, 'begins with "-"'),
        ("git::ssh://-oProxyCommand=id@h/r", {}, 'begins with "-"'),
        ("hg::ssh://-oProxyCommand=id/r", {}, "hg cannot fetch"),
        ("hg::file:///srv/r", {}, "hg cannot fetch"),
        ("hg::https://-x/r", {}, 'begins with "-"'),
        ("hg::https://h/r", {"rev": "--config=hooks.x=id"}, "rev"),
    ],
)
def test_what_cannot_be_fetched_is_told_why(text: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(LepaError, match=said):
        source(text, **options)


def test_modes() -> None:
    with pytest.raises(LepaError, match="any, file, dir"):
        source("https://h/x", mode="some")
