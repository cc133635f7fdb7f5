"""Fixtures that python-nomad's own tests expect. Copied beside them by `script/test-python-nomad`.

Several tests ask for the allocation of a job right after registering it. A client is handed out when the job
"example", once it is there, has been placed.
"""

import time

import nomad
import pytest
import tests.common as common

PLACED_S = 10


@pytest.fixture
def nomad_setup():
    client = nomad.Nomad(host=common.IP, port=common.NOMAD_PORT, verify=False, token=common.NOMAD_TOKEN)
    deadline = time.monotonic() + PLACED_S
    while _waits_for_placement(client):
        assert time.monotonic() < deadline, "the job is not placed"
        time.sleep(0.02)
    return client


def _waits_for_placement(client):
    try:
        return not client.job.get_job("example")["Stop"] and not client.job.get_allocations("example")
    except nomad.api.exceptions.BaseNomadException:
        return False


@pytest.fixture
def nomad_setup_with_namespace():
    return nomad.Nomad(
        host=common.IP,
        port=common.NOMAD_PORT,
        verify=False,
        token=common.NOMAD_TOKEN,
        namespace=common.NOMAD_NAMESPACE,
    )
