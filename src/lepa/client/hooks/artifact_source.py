"""Pure: an artifact's source and options -> what to fetch, and how.

Sources are written as go-getter takes them: a URL; `git::URL`; `hg::URL`; `github.com/owner/repository`; `//directory`
for a part of what is fetched; `checksum`, `archive`, `filename`, `ref`, `rev`, `depth` and `sshkey` as options or in
the URL's query.
"""

import posixpath
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from lepa.client.task_env import interpolate
from lepa.model.errors import LepaError, invalid
from lepa.model.task import TaskArtifact

CREDENTIALS = {"aws_access_key_id": "id", "aws_access_key_secret": "secret", "aws_access_token": "token"}
OPTIONS = frozenset({"checksum", "archive", "filename", "ref", "depth", "rev", "sshkey", *CREDENTIALS, "region"})
DIGESTS = {"md5": 32, "sha1": 40, "sha256": 64, "sha512": 128}
ENDINGS = {
    ".tar.gz": "tar.gz",
    ".tgz": "tar.gz",
    ".tar.bz2": "tar.bz2",
    ".tbz2": "tar.bz2",
    ".tar.xz": "tar.xz",
    ".txz": "tar.xz",
    ".tar": "tar",
    ".zip": "zip",
    ".gz": "gz",
    ".bz2": "bz2",
    ".xz": "xz",
}
GIT_HOSTS = ("github.com/", "gitlab.com/", "bitbucket.org/")
GIT_SCHEMES = ("https", "http", "ssh", "file", "git")
HG_SCHEMES = ("https", "http")
MODES = ("any", "file", "dir")
_FORCED = re.compile(r"^([a-z0-9]+)::(.+)$")
_AMAZON = re.compile(r"(^|\.)s3([.-](?P<region>[a-z]{2}-[a-z0-9-]+-\d))?\.amazonaws\.com$")
_REF = re.compile(r"[\w.][\w./@^~+-]*")


class ObjectPlace(NamedTuple):
    """An object in a store. endpoint: "" for the store that everybody means."""

    bucket: str
    key: str
    endpoint: str = ""
    region: str = ""


class Source(NamedTuple):
    """What to fetch.

    kind: "http", "git", "hg", "s3" or "gcs". archive: how to unpack it, "" for a plain file. mode: any, file or dir.
    ssh_key: in base64. place, credentials: of objects.
    """

    kind: str
    url: str
    mode: str = "any"
    subdirectory: str = ""
    file_name: str = ""
    archive: str = ""
    checksum_type: str = ""
    checksum: str = ""
    ref: str = ""
    depth: str = ""
    ssh_key: str = ""
    headers: Mapping[str, str] = {}
    place: ObjectPlace = ObjectPlace("", "")
    credentials: Mapping[str, str] = {}


def source_of(artifact: TaskArtifact, targets: Mapping[str, str]) -> Source:
    """What an artifact block asks for. targets: what its texts may name. Raises LepaError(invalid | unsupported)."""
    text = interpolate(artifact.getter_source, targets)
    options = {name: interpolate(value, targets) for name, value in artifact.getter_options.items()}
    mode = artifact.getter_mode or "any"
    if mode not in MODES:
        raise invalid(f'mode "{mode}" is not one of any, file, dir')
    kind, url = _kind_and_url(text)
    url, subdirectory = _split_subdirectory(url)
    url, queried = _split_query(url)
    options = queried | options
    if kind == "git":
        depth, ssh_key = _number(options.get("depth", "")), options.get("sshkey", "")
        return Source("git", url, mode, subdirectory, ref=_ref(options, "ref"), depth=depth, ssh_key=ssh_key)
    if kind == "hg":
        return Source("hg", url, mode, subdirectory, ref=_ref(options, "rev"))
    file_name = _file_name(url, options.get("filename", ""))
    headers = {
        interpolate(name, targets): interpolate(value, targets) for name, value in artifact.getter_headers.items()
    }
    digest = _checksum(options["checksum"]) if options.get("checksum") else ("", "")
    archive = "" if mode == "file" else _archive(file_name, options.get("archive", ""))
    if subdirectory and not archive:
        raise invalid("a part of a source (`//`) needs an archive or a repository")
    if kind == "http":
        return Source("http", url, mode, subdirectory, file_name, archive, *digest, headers=headers)
    place = _s3_place(url, options.get("region", "")) if kind == "s3" else _gcs_place(url)
    own = {CREDENTIALS[name]: value for name, value in options.items() if name in CREDENTIALS and value}
    return Source(kind, url, mode, subdirectory, file_name, archive, *digest, place=place, credentials=own)


def _kind_and_url(text: str) -> tuple[str, str]:
    forced = _FORCED.match(text)
    if forced is not None and forced[1] not in {"git", "hg", "s3", "gcs", "http", "https"}:
        known = "http, https, git, hg, s3 or gcs"
        raise LepaError("unsupported", f'sources of type "{forced[1]}" cannot be fetched; use {known}')
    if forced is not None and forced[1] == "hg":
        if urlsplit(forced[2]).scheme not in HG_SCHEMES:
            raise LepaError("unsupported", f'hg cannot fetch from "{forced[2]}"; use http or https')
        return "hg", _plain_host(forced[2])
    if forced is not None and forced[1] == "git":
        url = f"file://{forced[2]}" if forced[2].startswith("/") else forced[2]
        if not url.startswith("git@") and urlsplit(url).scheme not in GIT_SCHEMES:
            raise LepaError("unsupported", f'git cannot fetch from "{url}"')
        return "git", _plain_host(url)
    url = forced[2] if forced else text
    if url.startswith(GIT_HOSTS):
        owner, repository, *rest = [*url.split("/", 3)[1:], ""][:3]
        return "git", f"https://{url.split('/', 1)[0]}/{owner}/{repository}" + (f"/{rest[0]}" if rest[0] else "")
    scheme = urlsplit(url).scheme
    if scheme not in {"http", "https"} or not urlsplit(url).hostname:
        raise LepaError("unsupported", f'"{text}" cannot be fetched; use an http or https URL, or git::URL')
    if forced is not None and forced[1] in ("s3", "gcs"):
        return forced[1], url
    if forced is None and _AMAZON.search(urlsplit(url).hostname or ""):
        return "s3", url
    return ("git" if urlsplit(url).path.endswith(".git") else "http"), url


def _s3_place(url: str, region: str) -> ObjectPlace:
    """By path (`s3.amazonaws.com/bucket/key`, and any other store) or by host (`bucket.s3.eu-west-1.amazonaws.com`)."""
    parts = urlsplit(url)
    host, path = parts.hostname or "", parts.path.lstrip("/")
    amazon = _AMAZON.search(host)
    if amazon is None:
        bucket, _, key = path.partition("/")
        return _named(ObjectPlace(bucket, key, f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", region), url)
    region = region or amazon["region"] or ""
    endpoint = f"https://s3.{region or 'us-east-1'}.amazonaws.com"
    bucket = host[: amazon.start()].rstrip(".")
    if bucket:
        return _named(ObjectPlace(bucket, path, endpoint, region), url)
    bucket, _, key = path.partition("/")
    return _named(ObjectPlace(bucket, key, endpoint, region), url)


def _gcs_place(url: str) -> ObjectPlace:
    """`www.googleapis.com/storage/v1/bucket/key`, or `storage.googleapis.com/bucket/key`."""
    path = urlsplit(url).path.lstrip("/").removeprefix("storage/v1/")
    bucket, _, key = path.partition("/")
    return _named(ObjectPlace(bucket, key), url)


def _named(place: ObjectPlace, url: str) -> ObjectPlace:
    if not place.bucket or not place.key:
        raise invalid(f'"{url}" names no bucket and object')
    return place


def _plain_host(url: str) -> str:
    """The same URL; a host or user that ssh would take for an option is refused."""
    parts = urlsplit(url) if "://" in url else urlsplit(f"ssh://{url.partition(':')[0]}")
    if (parts.hostname or "").startswith("-") or (parts.username or "").startswith("-"):
        raise invalid(f'"{url}" has a host that begins with "-"')
    return url


def _split_subdirectory(url: str) -> tuple[str, str]:
    """`https://host/a.zip//dir?x=1` -> the URL without `//dir`, and `dir`."""
    head, separator, rest = url.partition("://")
    base, found, part = rest.partition("//") if separator else head.partition("//")
    if not found:
        return url, ""
    subdirectory, mark, query = part.partition("?")
    if ".." in subdirectory.split("/"):
        raise invalid(f'"{subdirectory}" leads outside of what is fetched')
    return (head + separator if separator else "") + base + mark + query, subdirectory


def _split_query(url: str) -> tuple[str, dict[str, str]]:
    """The URL without the options in its query, and these."""
    parts = urlsplit(url)
    if not parts.query:
        return url, {}
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    options = {name: value for name, value in pairs if name in OPTIONS}
    if not options:
        return url, {}
    rest = urlencode([(name, value) for name, value in pairs if name not in OPTIONS])
    return urlunsplit(parts._replace(query=rest)), options


def _file_name(url: str, wanted: str) -> str:
    name = wanted or posixpath.basename(urlsplit(url).path.rstrip("/")) or "index.html"
    if "/" in name or name in {".", ".."} or "\0" in name:
        raise invalid(f'"{name}" is not a file name')
    return name


def _archive(file_name: str, wanted: str) -> str:
    if wanted.lower() in {"false", "0"}:
        return ""
    if wanted:
        kind = ENDINGS.get(f".{wanted.lstrip('.')}")
        if kind is None:
            raise LepaError("unsupported", f'archives of type "{wanted}" cannot be unpacked')
        return kind
    return next((kind for ending, kind in ENDINGS.items() if file_name.lower().endswith(ending)), "")


def _checksum(text: str) -> tuple[str, str]:
    """ "sha256:<hex>", or the hex alone, whose length tells the type."""
    kind, separator, value = text.partition(":")
    if not separator:
        kind, value = next((name for name, length in DIGESTS.items() if length == len(text)), ""), text
    if DIGESTS.get(kind) != len(value) or not re.fullmatch("[0-9a-fA-F]+", value):
        raise invalid(f'checksum "{text}" is not md5, sha1, sha256 or sha512 with its digits')
    return kind, value.lower()


def _ref(options: Mapping[str, str], name: str) -> str:
    ref = options.get(name, "")
    if ref and not _REF.fullmatch(ref):
        raise invalid(f'{name} "{ref}" is not the name of a branch, tag or commit')
    return ref


def _number(text: str) -> str:
    if text and not text.isdigit():
        raise invalid(f'depth "{text}" is not a number')
    return text
