"""Every test here needs root, namespaces and some seconds of a real cluster."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(300))
