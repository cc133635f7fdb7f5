"""An etcd of our own: found, refused when it is too old, started again when it dies, ended with us."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.e2e.agents import _free_port

from lepa.kit.sources import SystemClock, SystemRandom
from lepa.model.errors import LepaError
from lepa.store.etcd import OWN_LIMITS, EtcdStore
from lepa.store.etcd_connection import Tls
from lepa.store.etcd_process import EtcdProcess, EtcdSettings, check_binary, command
from lepa.store.formation import Membership, Peer
from lepa.store.protocol import Put, Txn

SOON_S = 30.0


def settings(folder: Path) -> EtcdSettings:
    client, peer = _free_port(), _free_port()
    return EtcdSettings(
        data_dir=str(folder / "etcd"),
        listen_host="127.0.0.1",
        client_port=client,
        peer_port=peer,
        client_url=f"http://127.0.0.1:{client}",
        peer_url=f"http://127.0.0.1:{peer}",
    )


def alone(wanted: EtcdSettings) -> Membership:
    return Membership("cluster", "a", (Peer("a", "", wanted.peer_url, wanted.client_url),))


async def test_debians_etcd_is_found_and_new_enough() -> None:
    assert (await check_binary("etcd")).endswith("/etcd")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, 'there is no program "/nowhere/etcd" on the PATH'),
        ("echo etcd Version: 3.3.25", "is etcd 3.3; lepa needs 3.4 or newer"),
        ("echo hello", "does not say that it is an etcd: 'hello'"),
    ],
)
async def test_an_etcd_that_is_missing_or_too_old_is_refused(tmp_path: Path, script: str | None, said: str) -> None:
    binary = "/nowhere/etcd"
    if script is not None:
        program = tmp_path / "etcd"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        binary = str(program)
    with pytest.raises(LepaError) as caught:
        await check_binary(binary)
    assert said in caught.value.message


async def test_it_takes_larger_transactions_and_is_started_again_when_it_dies(tmp_path: Path) -> None:
    wanted = settings(tmp_path)
    async with EtcdProcess(wanted, alone(wanted), SystemClock()) as process:
        store = await EtcdStore.open([wanted.client_url], SystemClock(), random=SystemRandom(), patience_s=SOON_S)
        store.limits = OWN_LIMITS
        many = Txn(tuple(Put(f"k/{at}", bytes(4_000)) for at in range(OWN_LIMITS.operations_max)))
        assert (await store.commit(many)).ok
        before = process.pid
        os.kill(before, signal.SIGKILL)
        committed = await store.commit(Txn((Put("a", b"1"),)))
        assert committed.ok
        assert process.pid not in (0, before)
        await store.close()
    assert process.pid == 0


async def test_what_it_said_last_is_told_while_it_does_not_run(tmp_path: Path) -> None:
    wanted = settings(tmp_path)
    membership = Membership("cluster", "a", (Peer("another", "", wanted.peer_url, wanted.client_url),))
    async with EtcdProcess(wanted, membership, SystemClock()) as process:
        async with asyncio.timeout(SOON_S):
            while "etcd ended" not in process.trouble:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert "couldn't find local name" in process.trouble


def test_certificates_are_wanted_from_servers_and_from_members(tmp_path: Path) -> None:
    wanted = settings(tmp_path)
    words = command(wanted, alone(wanted))
    assert not any(word.startswith(("--cert-file", "--client-cert")) for word in words)
    words = command(replace(wanted, tls=Tls("/ca", "/cert", "/key")), alone(wanted))
    assert {"--client-cert-auth", "--peer-client-cert-auth", "--trusted-ca-file=/ca", "--peer-key-file=/key"} <= set(
        words
    )
    assert any(word.startswith("--listen-peer-urls=https://127.0.0.1:") for word in words)
