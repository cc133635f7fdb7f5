"""TLS on sockets that never block, with the manners of plain ones: `recv` and `send` raise BlockingIOError."""

import socket
import ssl
from contextlib import suppress
from functools import cache
from typing import Any


class TlsSocket(ssl.SSLSocket):
    """A TLS connection. asked_for: the name that a client asked for, once it has."""

    asked_for: str = ""

    def recv(self, buflen: int = 16_384, flags: int = 0) -> bytes:
        """Decrypted bytes; b"" at an end, in order or not. Less than asked for does not mean that no more is there."""
        try:
            return super().recv(buflen)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLZeroReturnError:
            return b""

    def send(self, data: Any, flags: int = 0) -> int:
        """Encrypt and send; how many bytes were taken."""
        try:
            return super().send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def close(self) -> None:
        """Say that it is over, as far as that can be sent at once, and close."""
        with suppress(OSError, ValueError):
            self.unwrap()
        super().close()

    def shutdown(self, how: int) -> None:
        """Say that nothing more is sent, in TLS and in TCP; reading goes on."""
        with suppress(OSError, ValueError):
            self.unwrap()
        socket.socket.shutdown(self, how)


@cache
def client_context(verify: bool) -> ssl.SSLContext:
    """For connections to targets."""
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.sslsocket_class = TlsSocket
    return context
