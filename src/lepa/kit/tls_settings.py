"""Pure: how a client of TLS is to behave, as flags and variables say it; `kit.tls` makes contexts of it."""

from typing import NamedTuple


class ClientTls(NamedTuple):
    """Files and names of a client, "" for none.

    ca_cert, ca_path: whom to trust, else the system's authorities. server_name: the name that the server's certificate
    must bear, else the host that is called. check_name False trusts any name that the authorities signed; skip_verify
    trusts anybody.
    """

    ca_cert: str = ""
    ca_path: str = ""
    client_cert: str = ""
    client_key: str = ""
    server_name: str = ""
    skip_verify: bool = False
    check_name: bool = True
