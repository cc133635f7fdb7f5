"""Certificates for TLS clients: PEM files with chain and key, chosen by the name a client asks for.

Files are read again when they change.

A file that is missing or broken is logged and passed over; what was good before stays in use until the new is good. A
key may stand in the same file or beside it: `a.crt` or `a.pem` with `a.key`.
"""

import logging
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from lepa.ingress.certificate_names import names_of
from lepa.ingress.tls_socket import TlsSocket

log = logging.getLogger(__name__)

FILES_MAX = 10_000
SUFFIXES = (".pem", ".crt", ".cert")
PROTOCOLS, GRPC_PROTOCOLS = ["http/1.1"], ["h2", "http/1.1"]
END = "-----END CERTIFICATE-----"


class Certificate(msgspec.Struct, frozen=True):
    """One file in use. names: the hosts it is for. stamp: when the files were last changed."""

    path: str
    stamp: tuple[int, ...]
    names: tuple[str, ...]
    context: ssl.SSLContext
    grpc: ssl.SSLContext


class Certificates:
    """All certificates of an ingress. speaks_grpc: whether a name is one of gRPC, for which HTTP/2 is offered."""

    def __init__(self, paths: Sequence[str], speaks_grpc: Callable[[str], bool]) -> None:
        self._paths = tuple(paths)
        self._speaks_grpc = speaks_grpc
        self._loaded: dict[str, Certificate] = {}
        self._by_name: dict[str, Certificate] = {}
        self._default: Certificate | None = None
        self.problems: tuple[str, ...] = ()

    def refresh(self) -> None:
        """Read what is new or has changed."""
        loaded: dict[str, Certificate] = {}
        problems: list[str] = []
        for path in self._files():
            old = self._loaded.get(str(path))
            try:
                stamp = _stamp(path)
                loaded[str(path)] = old if old and old.stamp == stamp else self._load(path, stamp)
            except (OSError, ValueError) as error:
                problems.append(f"certificate {path}: {getattr(error, 'strerror', None) or error}")
                if old is not None:
                    loaded[str(path)] = old
        if not loaded and self._paths:
            problems.append("no certificate can be used: TLS clients are refused")
        for problem in problems:
            if problem not in self.problems:
                log.warning("%s", problem)
        by_name: dict[str, Certificate] = {}
        for certificate in loaded.values():
            for name in certificate.names:
                by_name.setdefault(name, certificate)
        self.problems = tuple(problems)
        self._loaded, self._by_name = loaded, by_name
        self._default = next(iter(loaded.values()), None)

    def context(self) -> ssl.SSLContext | None:
        """What a handshake begins with; None when there is no certificate at all."""
        return self._default.context if self._default is not None else None

    def _files(self) -> Iterator[Path]:
        count = 0
        for text in self._paths:
            path = Path(text)
            inside = sorted(entry for entry in path.iterdir() if entry.suffix in SUFFIXES) if path.is_dir() else [path]
            for entry in inside:
                count += 1
                if count > FILES_MAX:
                    return
                yield entry

    def _load(self, path: Path, stamp: tuple[int, ...]) -> Certificate:
        text = path.read_text()
        first, end, _ = text.partition(END)
        if not end:
            raise ValueError("it holds no certificate")
        names = names_of(ssl.PEM_cert_to_DER_cert(first[first.index("-----BEGIN CERTIFICATE-----") :] + end))
        log.info("certificate loaded path=%s names=%s", path, ",".join(names))
        key = path.with_suffix(".key")
        pair = (str(path), str(key) if key.exists() else None)
        return Certificate(str(path), stamp, names, self._context(pair, PROTOCOLS), self._context(pair, GRPC_PROTOCOLS))

    def _context(self, pair: tuple[str, str | None], protocols: list[str]) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair)
        context.set_alpn_protocols(protocols)
        context.sslsocket_class = TlsSocket
        context.sni_callback = self._choose
        return context

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
        """The certificate for a name: its own, that of its domain, else the default."""
        asked = (name or "").lower()
        if isinstance(connection, TlsSocket):
            connection.asked_for = asked
        domain = asked.partition(".")[2]
        found = self._by_name.get(asked) or self._by_name.get(f"*.{domain}") or self._default
        if found is not None:
            connection.context = found.grpc if self._speaks_grpc(asked) else found.context


def _stamp(path: Path) -> tuple[int, ...]:
    """When the files of a certificate were changed, and which they are: a renewal may swap a link."""
    files = [file for file in (path, path.with_suffix(".key")) if file == path or file.exists()]
    return tuple(number for status in map(Path.stat, files) for number in (status.st_mtime_ns, status.st_ino))
