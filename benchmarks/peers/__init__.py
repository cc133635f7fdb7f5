"""Other people's servers, installed from PyPI for one run, in the versions and with the digests of their files."""

import os
import subprocess
import sysconfig
import venv
from pathlib import Path

INSTALL_S = 300


def install(name: str, folder: Path) -> Path | None:
    """The interpreter of a virtual environment with the packages of `NAME.txt`; None when they cannot be had here."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "-r", Path(__file__).with_name(f"{name}.txt")]
    try:
        done = subprocess.run(command, capture_output=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        return None
    return None if done.returncode else python


def environment() -> dict[str, str]:
    """Variables that let such an interpreter see lepa and the packages of this one."""
    source = Path(__file__).parents[2] / "src"
    return {**os.environ, "PYTHONPATH": f"{source}:{sysconfig.get_paths()['purelib']}"}
