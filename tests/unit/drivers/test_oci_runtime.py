from pathlib import Path

from lepa.drivers.oci_runtime import OciRuntime, call, write_private
from lepa.drivers.supervisor.messages import CONSOLE


def test_the_container_is_started_detached_with_its_errors_in_a_file() -> None:
    argv = OciRuntime("/usr/bin/crun", "/state", no_pivot_root=True).run_argv("c", "/bundle", "/pid", "/error")
    assert argv[:5] == ("/usr/bin/crun", "--root", "/state", "--log", "/error")
    assert argv[5:] == ("run", "--detach", "--pid-file", "/pid", "--bundle", "/bundle", "--no-pivot", "c")


def test_only_crun_hands_over_its_terminal() -> None:
    assert CONSOLE in OciRuntime("/usr/bin/crun", "/state").exec_argv("c", "/process", tty=True)
    assert CONSOLE not in OciRuntime("/usr/bin/runc", "/state").exec_argv("c", "/process", tty=True)
    assert "--tty" not in OciRuntime("/usr/bin/crun", "/state").exec_argv("c", "/process", tty=False)


async def test_a_call_gives_the_last_complaint() -> None:
    assert await call(("/bin/sh", "-c", "echo one >&2; echo two >&2; exit 3")) == (3, "two")
    assert await call(("/bin/true",)) == (0, "")


def test_private_files_are_private(tmp_path: Path) -> None:
    write_private(str(tmp_path / "f"), b"secret")
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "f").read_bytes() == b"secret"
