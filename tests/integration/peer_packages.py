"""Other people's packages, each set in a virtual environment of its own.

`peers/NAME.txt` pins them with the hashes of the wheels for this interpreter on Linux x86-64; pip installs them from
the package index into a folder that lives as long as the test session. A test that cannot have them fails with pip's words.
"""

import contextlib
import shutil
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

PEERS = Path(__file__).parent / "peers"
INSTALL_TIMEOUT_S = 600


@contextlib.contextmanager
def peer_python(name: str, folder: Path, system_site: bool = False) -> Iterator[Path]:
    """The interpreter of an environment that holds the packages of `peers/{name}.txt`, while the context lasts.
    system_site: see the packages of the interpreter that runs the tests, too."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    if system_site:
        _see_packages_of_tests(folder)
    command = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command += ["--ignore-installed", "-r", PEERS / f"{name}.txt"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    if done.returncode:
        pytest.fail(f"the packages of {name} could not be installed: {done.stderr[-2000:]}", pytrace=False)
    try:
        yield python
    finally:
        shutil.rmtree(folder)


def _see_packages_of_tests(folder: Path) -> None:
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "tests.pth").write_text(str(Path(pytest.__file__).parents[1]) + "\n")
