"""Secrets in memory."""

import os
from pathlib import Path

from lepa.client import secrets_mount


def test_what_is_mounted_is_found_and_taken_away(tmp_path: Path) -> None:
    secrets = tmp_path / "with blank" / "secrets"
    secrets.mkdir(parents=True)
    mounted = secrets_mount.mount(secrets)
    try:
        assert mounted == (os.geteuid() == 0)
        assert secrets_mount.mounted_below(tmp_path) == ([secrets] if mounted else [])
    finally:
        secrets_mount.unmount_below(tmp_path)
    assert secrets_mount.mounted_below(tmp_path) == []
