"""How tasks in a namespace find names."""

import pytest

from lepa.client.network import resolving
from lepa.client.network.cni import Attached
from lepa.client.network.resolving import HostFiles
from lepa.model.resources import DNSConfig

HOST = HostFiles("# by hand\nnameserver 192.0.2.53 ; home\nsearch a.test\nsearch b.test c.test\noptions ndots:2\n")
STUB = HostFiles("nameserver 127.0.0.53\nsearch b.test\n", "nameserver 192.0.2.53\n")


def test_a_resolv_conf_is_read_as_the_c_library_does() -> None:
    assert resolving.parse(HOST.resolv_conf) == DNSConfig(("192.0.2.53",), ("b.test", "c.test"), ("ndots:2",))


@pytest.mark.parametrize(
    ("wanted", "given", "servers", "host", "found"),
    [
        (DNSConfig(servers=("9.9.9.9",)), Attached(nameservers=("8.8.8.8",)), (), HOST, DNSConfig(("9.9.9.9",))),
        (None, Attached(nameservers=("8.8.8.8",)), (), HOST, DNSConfig(("8.8.8.8",))),
        (None, Attached(), (), HOST, None),
        (
            None,
            Attached(),
            ("10.88.0.1",),
            HOST,
            DNSConfig(("10.88.0.1", "192.0.2.53"), ("b.test", "c.test"), ("ndots:2",)),
        ),
        (None, Attached(), (), STUB, DNSConfig(("192.0.2.53",), ("b.test",))),
        (None, Attached(), (), HostFiles("nameserver 127.0.0.1\n"), None),
        (DNSConfig(), Attached(), (), HOST, None),
    ],
    ids=["the job's word", "the network's", "the host's file", "an overlay's first", "behind a stub", "none", "empty"],
)
def test_whom_a_namespace_asks(
    wanted: DNSConfig | None, given: Attached, servers: tuple[str, ...], host: HostFiles, found: DNSConfig | None
) -> None:
    assert resolving.name_service(wanted, given, servers, host) == found


def test_the_file_of_hosts_names_the_allocation() -> None:
    assert resolving.hosts_file("10.1.2.3", "web").splitlines()[-1] == "10.1.2.3 web"
    assert resolving.hosts_file("", "web").splitlines()[-1] == "127.0.1.1 web"
