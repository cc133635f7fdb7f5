"""What jobs of strangers try on a node, in numbers: archives (S6), sources of artifacts (S7), templates (S8).

Modules: lepa.client.hooks.archives, lepa.client.hooks.artifact_source, lepa.client.hooks.artifact_settings,
lepa.client.hooks.template_text.
"""

import contextlib
import io
import itertools
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.client.hooks.test_archives import entry, zipped
from tests.unit.client.hooks.test_template_settings import world

from lepa.client.hooks import archives
from lepa.client.hooks.artifact_settings import ArtifactSettings, denied
from lepa.client.hooks.artifact_source import source_of
from lepa.client.hooks.template_settings import TemplateSettings
from lepa.client.hooks.template_text import render
from lepa.model.errors import LepaError
from lepa.model.task import TaskArtifact

OUTWARD = (
    *("../out", "/out", "a/../../out", "..", "./../out", "a/b/../../../out", "a/./../../out", "//out", "../../out"),
    *("/../out", "..//out", "a/.././../out", "../target/../out", "/tmp/../out"),
)
PACKED = {"tar": "w:", "tar.gz": "w:gz", "tar.xz": "w:xz"}


def hostile_tars() -> Iterator[tuple[str, bytes]]:
    """An entry that leads out by its name, or by where it points; alone, or with a file that goes through it."""
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE)
    for name, (kind, mode) in itertools.product(OUTWARD, PACKED.items()):
        members = [(entry(name), b"x")]
        yield kind, _packed(mode, members)
        for link in kinds:
            yield kind, _packed(mode, [(entry("link", link, name), b""), (entry("link/out"), b"x")])
    for special in (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE):
        for kind, mode in PACKED.items():
            yield kind, _packed(mode, [(entry("out", special), b"")])


def _packed(mode: str, members: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def hostile_zips() -> Iterator[tuple[str, bytes]]:
    """The same; links and devices as programs for Unix write them."""
    for name, mode in itertools.product(OUTWARD, (0o100644, 0o120777, 0o20666, 0o10644)):
        yield "zip", zipped(name, b"/etc/passwd", mode)
    yield "zip", zipped("a\\..\\..\\out", b"x")


def test_no_archive_gets_out_of_its_place(tmp_path: Path) -> None:
    """S6. One that is taken holds files and directories inside, and nobody's rights."""
    tried = 0
    for number, (kind, data) in enumerate((*hostile_tars(), *hostile_zips())):
        tried += 1
        place = tmp_path / str(number)
        target = place / "target"
        target.mkdir(parents=True)
        (place / "archive").write_bytes(data)
        with contextlib.suppress(LepaError):
            archives.unpack(place / "archive", kind, target, "x")
        assert sorted(os.listdir(place)) == ["archive", "target"]
        for path in target.rglob("*"):
            assert path.resolve().is_relative_to(target)
            assert stat.S_IFMT(path.lstat().st_mode) in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
            assert not path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID)
    assert tried >= 180
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_rights_of_others_do_not_come_out_of_an_archive(tmp_path: Path, kind: str) -> None:
    """S6, CVE-2019-14803."""
    tool = entry("tool")
    tool.mode = 0o6777
    data = zipped("tool", b"x", 0o106777) if kind == "zip" else _packed("w:", [(tool, b"x")])
    (tmp_path / "archive").write_bytes(data)
    (tmp_path / "target").mkdir()
    archives.unpack(tmp_path / "archive", kind, tmp_path / "target", "x")
    assert stat.S_IMODE((tmp_path / "target/tool").stat().st_mode) == 0o755


SCHEMES = (
    *("file:///etc/passwd", "ext::sh -c id", "git::ext::sh -c id", "git::--upload-pack=id", "hg::file:/x"),
    *(
        "hg::ssh://h/x",
        "git::-u",
        "git::ssh://-oProxyCommand=id/x",
        "git::https://-h/x",
        "hg::https://-h/x",
        "s3::file:///x",
    ),
    *("gopher://h/x", "ftp://h/x", "data:text/plain,x", "dict://h/x", "ldap://h/x", "jar:http://h/x", "javascript:x"),
    *("unix:///run/docker.sock", "http:///x", "https://", "http:x", "/etc/passwd", "../x", "./x", "-o", "", " "),
    *("git::git@-oProxyCommand=id:x", "hg::-R", "smb://h/x", "sftp://h/x", "gcs::file:///x"),
)
REFS = (
    "--upload-pack=id",
    "-x",
    "--output=/x",
    "a b",
    "a;id",
    "$(id)",
    "`id`",
    "a\nb",
    "a\0b",
    "|id",
    "&id",
    ">x",
    "'",
)
DIGESTS = ("md5:x", "sha1:-", "sha999:aa", "file:/etc/passwd", "sha256:" + "g" * 64, "sha256:" + "a" * 63, ":")
OPTIONS = tuple(
    (source, {name: value})
    for source, name, values in (
        ("git::https://h/x.git", "ref", REFS),
        ("hg::https://h/x", "rev", REFS),
        ("git::https://h/x.git", "depth", ("-1", "x", "1;id", "--x", "1 2")),
        ("https://h/x.tar", "checksum", DIGESTS),
        ("https://h/x", "archive", ("rar", "../x", "-x")),
        ("https://h/x", "filename", ("../x", "/x", "a/b", "..", ".")),
    )
    for value in values
)


@pytest.mark.parametrize(("source", "options"), [*((each, {}) for each in SCHEMES), *OPTIONS], ids=repr)
def test_sources_that_would_do_more_than_fetch_are_refused(source: str, options: dict[str, str]) -> None:
    """S7: schemes, options of git and hg, shells, digests."""
    with pytest.raises(LepaError):
        source_of(TaskArtifact(getter_source=source, getter_options=options), {})


@pytest.mark.parametrize(
    "address",
    [
        *(f"{prefix}169.254.169.254" for prefix in ("", "::ffff:", "64:ff9b::")),
        *("169.254.0.0", "169.254.255.255", "169.254.170.2", "::ffff:a9fe:a9fe"),
        *("fe80::1", "fe80::a9fe:a9fe%eth0", "febf::1", "fd00:ec2::254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"),
    ],
)
def test_every_spelling_of_a_metadata_service_is_denied(address: str) -> None:
    """S7: IPv4 inside IPv6 is judged as what it is."""
    settings = ArtifactSettings()
    assert denied(address, settings.denied_networks)


PATHS = (
    "/dev/zero",
    *("/etc/passwd", "../../../../../etc/passwd", "local/../../../../../etc/passwd", "/proc/self/environ", "local/out"),
    *(
        "/proc/1/environ",
        "//etc/passwd",
        "local//../../../../etc/passwd",
        "secrets/../../../../../etc/passwd",
        "/dev/zero",
    ),
)
FORMS = (
    *('{{{{ {f} "{p}" }}}}', '{{{{ "{p}" | {f} }}}}', '{{{{ with {f} "{p}" }}}}{{{{ . }}}}{{{{ end }}}}'),
    *('{{{{ $x := {f} "{p}" }}}}{{{{ $x }}}}', '{{{{ if true }}}}{{{{ {f} "{p}" }}}}{{{{ end }}}}'),
    '{{{{ range loop 1 }}}}{{{{ {f} "{p}" }}}}{{{{ end }}}}',
)
FUNCTIONS = ("file", "plugin", "exec", "executeTemplate")


def test_templates_read_and_run_nothing_of_the_host(tmp_path: Path) -> None:
    """S8: functions, ways to call them, and paths, one with another."""
    seen = world(tmp_path, TemplateSettings())
    (tmp_path / "host").write_text("root:host's")
    local = next(tmp_path.rglob("own")).parent
    (local / "out").symlink_to(tmp_path / "host")
    tried = list(itertools.product(FUNCTIONS, FORMS, PATHS))
    assert len(tried) >= 200
    for function, form, path in tried:
        with pytest.raises(LepaError):
            render(form.format(f=function, p=path), seen)


@pytest.mark.parametrize(
    "bomb",
    [
        "{{ range loop 1000000000 }}x{{ end }}",
        "{{ range loop 30000 }}{{ range loop 30000 }}x{{ end }}{{ end }}",
        '{{ define "a" }}{{ template "a" }}{{ end }}{{ template "a" }}',
        '{{ define "a" }}{{ template "b" }}{{ end }}{{ define "b" }}{{ template "a" }}{{ end }}{{ template "a" }}',
        "{{ if true }}" * 5000,
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    ],
    ids=["loop", "loops", "itself", "each other", "blocks", "brackets"],
)
def test_template_bombs_are_put_out(tmp_path: Path, bomb: str) -> None:
    with pytest.raises(LepaError):
        render(bomb, world(tmp_path, TemplateSettings()))
