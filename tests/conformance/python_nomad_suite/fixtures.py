"""Fixtures that python-nomad's own tests expect. Copied beside them by `script/test-python-nomad`."""

import nomad
import pytest
import tests.common as common


@pytest.fixture
def nomad_setup():
    return nomad.Nomad(host=common.IP, port=common.NOMAD_PORT, verify=False, token=common.NOMAD_TOKEN)


@pytest.fixture
def nomad_setup_with_namespace():
    return nomad.Nomad(
        host=common.IP,
        port=common.NOMAD_PORT,
        verify=False,
        token=common.NOMAD_TOKEN,
        namespace=common.NOMAD_NAMESPACE,
    )
