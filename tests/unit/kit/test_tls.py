"""Who speaks TLS to whom, with certificates of every kind."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lepa.kit.certificate_authority import Pair, Subject, authority, issue
from lepa.kit.tls import CIPHERS, ServerTls, client_context, first_name, names_of
from lepa.kit.tls_settings import ClientTls

NOW = datetime.now(UTC)
HOST = "127.0.0.1"
WAIT_S = 10.0


@dataclass(frozen=True)
class Files:
    """A certificate and its key on disk."""

    cert: str
    key: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates: `ca`, `other` (an authority), and some that they signed."""
    made = tmp_path_factory.mktemp("tls")
    ca, other = (authority(Subject(name), 30, NOW) for name in ("ca", "other"))
    for name, pair in {
        "ca": ca,
        "other": other,
        "server": issue(ca, "server.eu.nomad", 30, NOW, dns=["server.eu.nomad", "x"], addresses=[HOST], server=True),
        "again": issue(ca, "again", 30, NOW, dns=["again"], addresses=[HOST], server=True),
        "person": issue(ca, "cli.eu.nomad", 30, NOW, dns=["cli.eu.nomad"], addresses=[], server=False),
        "stranger": issue(other, "cli.eu.nomad", 30, NOW, dns=["cli.eu.nomad"], addresses=[HOST], server=True),
        "expired": issue(ca, "e", 1, NOW - timedelta(days=3), dns=["e"], addresses=[HOST], server=True),
        "early": issue(ca, "f", 30, NOW + timedelta(days=3), dns=["f"], addresses=[HOST], server=True),
    }.items():
        _write(made, name, pair)
    return made


def _write(folder: Path, name: str, pair: Pair) -> None:
    (folder / f"{name}.pem").write_bytes(pair.certificate)
    (folder / f"{name}-key.pem").write_bytes(pair.key)


def files(folder: Path, name: str) -> Files:
    return Files(str(folder / f"{name}.pem"), str(folder / f"{name}-key.pem"))


def server_tls(folder: Path, name: str = "server", **settings: object) -> ServerTls:
    shown = files(folder, name)
    return ServerTls(shown.cert, shown.key, str(folder / "ca.pem"), **settings)  # type: ignore[arg-type]


@contextmanager
def serving(tls: ServerTls) -> Iterator[int]:
    """A server that says "hello" and the name of its caller; its port."""
    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(WAIT_S)
        ending = threading.Event()

        def serve() -> None:
            while not ending.is_set():
                with suppress(OSError):
                    client, _ = listener.accept()
                    client.settimeout(WAIT_S)
                    with client, tls.context.wrap_socket(client, server_side=True) as secured:
                        name = ",".join(names_of(secured.getpeercert() or {})) if tls.context.verify_mode else ""
                        secured.sendall(f"hello {name}".encode())
                        secured.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            ending.set()
            with suppress(OSError):
                socket.create_connection((HOST, listener.getsockname()[1]), 1).close()
            thread.join()


def says(port: int, context: ssl.SSLContext) -> str:
    """What the server says. Raises OSError (SSLError is one) when the two do not come together."""
    with socket.create_connection((HOST, port), WAIT_S) as plain:
        with context.wrap_socket(plain, server_hostname=HOST) as secured:
            said = secured.recv(100).decode()
    if not said:
        raise OSError("ended without a word")
    return said


def client(folder: Path, **settings: object) -> ssl.SSLContext:
    given = {"ca_cert": str(folder / "ca.pem")} | settings
    return client_context(ClientTls(**given))  # type: ignore[arg-type]


def shown(folder: Path, name: str) -> dict[str, str]:
    found = files(folder, name)
    return {"client_cert": found.cert, "client_key": found.key}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"server_name": "server.eu.nomad"},
        {"ca_cert": "", "skip_verify": True},
        {"check_name": False},
    ],
)
def test_whoever_trusts_the_authority_comes_together(folder: Path, settings: dict[str, object]) -> None:
    with serving(server_tls(folder)) as port:
        assert says(port, client(folder, **settings)) == "hello "


@pytest.mark.parametrize(
    ("server", "settings", "reason"),
    [
        ("server", {"ca_cert": ""}, "CERTIFICATE_VERIFY_FAILED"),
        ("server", {"ca_cert": "other"}, "CERTIFICATE_VERIFY_FAILED"),
        ("server", {"server_name": "server.us.nomad"}, "CERTIFICATE_VERIFY_FAILED"),
        ("stranger", {}, "CERTIFICATE_VERIFY_FAILED"),
        ("expired", {}, "CERTIFICATE_VERIFY_FAILED"),
        ("early", {}, "CERTIFICATE_VERIFY_FAILED"),
        ("expired", {"check_name": False}, "CERTIFICATE_VERIFY_FAILED"),
    ],
)
def test_a_server_that_is_not_the_right_one_is_refused(
    folder: Path, server: str, settings: dict[str, str], reason: str
) -> None:
    if settings.get("ca_cert"):
        settings = settings | {"ca_cert": str(folder / f"{settings['ca_cert']}.pem")}
    with serving(server_tls(folder, server)) as port, pytest.raises(ssl.SSLError, match=reason):
        says(port, client(folder, **settings))


@pytest.mark.parametrize(
    ("name", "enters"),
    [("person", True), ("server", True), ("stranger", False), ("expired", False), ("early", False), ("", False)],
)
def test_a_server_that_demands_certificates_takes_its_own_people_only(folder: Path, name: str, enters: bool) -> None:
    settings = shown(folder, name) if name else {}
    with serving(server_tls(folder, demand=True)) as port:
        if enters:
            assert "eu.nomad" in says(port, client(folder, **settings))
        else:
            with pytest.raises(OSError):
                says(port, client(folder, **settings))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_are_not_spoken(folder: Path, version: ssl.TLSVersion) -> None:
    old = client(folder)
    old.minimum_version = old.maximum_version = version
    old.set_ciphers("ALL:@SECLEVEL=0")
    with serving(server_tls(folder)) as port, pytest.raises(OSError):
        says(port, old)


def test_the_newest_version_alone_can_be_demanded(folder: Path) -> None:
    older = client(folder)
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(server_tls(folder, min_version="tls13")) as port:
        assert says(port, client(folder)) == "hello "
        with pytest.raises(OSError):
            says(port, older)


def test_suites_can_be_chosen_by_their_registered_names(folder: Path) -> None:
    chosen = server_tls(folder, ciphers=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",))
    older = client(folder)
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(chosen) as port:
        assert says(port, older) == "hello "
        older.set_ciphers(CIPHERS["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"])
        with pytest.raises(OSError):
            says(port, older)


def test_plain_text_gets_no_answer(folder: Path) -> None:
    with serving(server_tls(folder)) as port, socket.create_connection((HOST, port), WAIT_S) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with suppress(ConnectionResetError):
            assert b"HTTP" not in plain.recv(100)


def test_reloaded_files_hold_for_new_connections_and_bad_ones_change_nothing(folder: Path, tmp_path: Path) -> None:
    here = Files(str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))

    def put(name: str) -> None:
        for source, target in zip(
            (files(folder, name).cert, files(folder, name).key), (here.cert, here.key), strict=True
        ):
            Path(target).write_bytes(Path(source).read_bytes())

    put("server")
    tls = ServerTls(here.cert, here.key)
    by_name: Callable[[str], ssl.SSLContext] = lambda name: client(folder, server_name=name)  # noqa: E731
    with serving(tls) as port:
        assert says(port, by_name("server.eu.nomad")) == "hello "
        put("again")
        assert says(port, by_name("server.eu.nomad")) == "hello "
        tls.reload()
        assert says(port, by_name("again")) == "hello "
        with pytest.raises(ssl.SSLError):
            says(port, by_name("server.eu.nomad"))
        Path(here.cert).write_text("nothing")
        with pytest.raises(ValueError, match="no certificate and key"):
            tls.reload()
        assert says(port, by_name("again")) == "hello "


@pytest.mark.parametrize(
    ("cert", "key", "ca", "settings", "reason"),
    [
        ("", "", "ca.pem", {}, "cert_file and key_file are missing"),
        ("server.pem", "", "ca.pem", {}, "cert_file and key_file are missing"),
        ("none.pem", "server-key.pem", "ca.pem", {}, "none.pem cannot be read: No such file"),
        ("server.pem", "none.pem", "ca.pem", {}, "none.pem cannot be read: No such file"),
        ("server.pem", "again-key.pem", "ca.pem", {}, "again-key.pem is not the key of .*server.pem"),
        ("server-key.pem", "server.pem", "ca.pem", {}, "are no certificate and key"),
        ("server.pem", "server-key.pem", "none.pem", {"demand": True}, "none.pem cannot be read"),
        ("server.pem", "server-key.pem", "server-key.pem", {"demand": True}, "holds no certificate"),
        ("server.pem", "server-key.pem", "", {"demand": True}, "ca_file is missing"),
        ("server.pem", "server-key.pem", "ca.pem", {"min_version": "tls11"}, 'tls_min_version "tls11"'),
        ("server.pem", "server-key.pem", "ca.pem", {"ciphers": ("RC4",)}, 'tls_cipher_suites: "RC4"'),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    folder: Path, cert: str, key: str, ca: str, settings: dict[str, object], reason: str
) -> None:
    paths = [str(folder / name) if name else "" for name in (cert, key, ca)]
    with pytest.raises(ValueError, match=reason):
        ServerTls(*paths, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"client_cert": "x.pem"}, "the certificate x.pem needs its key"),
        ({"client_key": "x.pem"}, "the key x.pem needs its certificate"),
        ({"ca_cert": "/nowhere/ca.pem"}, "/nowhere/ca.pem cannot be read"),
    ],
)
def test_what_is_wrong_with_a_callers_files_is_said(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        client_context(ClientTls(**settings))  # type: ignore[arg-type]


def test_the_first_name_of_a_certificate(folder: Path) -> None:
    assert first_name(str(folder / "server.pem")) == "server.eu.nomad"
    assert first_name(str(folder / "ca.pem")) == ""
    assert first_name(str(folder / "none.pem")) == ""
