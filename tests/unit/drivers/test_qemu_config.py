"""What a job may put into QEMU's command line."""

import pytest
from msgspec.structs import replace

from lepa.drivers.protocol import DriverError, TaskConfig
from lepa.drivers.qemu_config import QemuSettings, command_line, config_problems
from lepa.model.resources import (
    AllocatedCpuResources,
    AllocatedMemoryResources,
    AllocatedPortMapping,
    AllocatedTaskResources,
)

TASK = TaskConfig(
    id="t",
    alloc_id="0123456789",
    config={"image_path": "local/a.img"},
    resources=AllocatedTaskResources(memory=AllocatedMemoryResources(memory_mb=64)),
)


def line(task: TaskConfig) -> str:
    return " ".join(command_line("/usr/bin/qemu-system-x86_64", task, "/a/b,c.img", "raw"))


PLAIN = QemuSettings()


def problems(*args: str, settings: QemuSettings = PLAIN, **config: object) -> list[str]:
    return config_problems({"image_path": "a", "args": list(args), **config}, settings)


def test_the_plain_machine() -> None:
    assert line(TASK) == (
        "/usr/bin/qemu-system-x86_64 -machine type=pc,accel=tcg -name lepa-01234567 -m 64M "
        "-drive file=/a/b,,c.img,format=raw,if=ide -nographic"
    )


def test_every_option_has_its_place() -> None:
    cores = replace(TASK.resources, cpu=AllocatedCpuResources(reserved_cores=(1, 3)))
    ports = (AllocatedPortMapping(label="ssh", value=2200, to=22, host_ip="10.0.0.1"),)
    config = {
        "image_path": "a",
        "machine_type": "q35",
        "accelerator": "kvm",
        "drive_interface": "virtio",
        "graceful_shutdown": True,
        "guest_agent": "true",
        "args": ["-no-reboot"],
        "port_map": [{"ssh": 22}],
    }
    made = line(replace(TASK, config=config, resources=cores, ports=ports))
    assert "type=q35,accel=kvm" in made
    assert "-cpu host" in made
    assert "-smp 2" in made
    assert "if=virtio" in made
    assert "-monitor unix:qemu-monitor.sock" in made
    assert "org.qemu.guest_agent.0" in made
    assert "-no-reboot" in made
    assert "hostfwd=tcp:10.0.0.1:2200-:22,hostfwd=udp:10.0.0.1:2200-:22" in made
    inside = replace(TASK, config=config, ports=ports, network_namespace="/run/netns/x")
    assert "hostfwd=tcp::22-:22" in line(inside)


def test_a_label_that_is_no_port_is_refused() -> None:
    with pytest.raises(DriverError, match="'ssh' is not a port of the group"):
        line(replace(TASK, config={"image_path": "a", "port_map": {"ssh": 22}}))


@pytest.mark.parametrize(
    "args",
    [
        ["-device", "vfio-pci,host=0000:01:00.0"],
        ["--drive", "file=/etc/shadow,format=raw"],
        ["-fsdev", "local,path=/,id=h"],
        ["-chardev", "file,path=/etc/passwd,id=c"],
        ["-snapshot", "/dev/sda", "/dev/sdb"],
        ["/dev/sda"],
        ["-monitor", "tcp::4444,server"],
        ["-kernel", "/boot/vmlinuz"],
    ],
)
def test_arguments_that_reach_the_host_are_refused(args: list[str]) -> None:
    """S8, CVE-2021-43415."""
    assert problems(*args)


def test_harmless_arguments_and_those_the_operator_lists_are_taken() -> None:
    assert problems("-smp", "2", "-cpu", "max", "--no-reboot") == []
    assert problems("-kernel", "k", settings=QemuSettings(args_allowlist=("-kernel",))) == []
    assert problems("-smp", "2", settings=QemuSettings(args_allowlist=("kernel",))) != []
    assert problems("-anything", "x", settings=QemuSettings(args_allowlist=("*",))) == []


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"drive_interface": "usb"}, "drive_interface must be one of"),
        ({"accelerator": "magic"}, "accelerator must be one of"),
        ({"machine_type": "pc,kernel=/boot/x"}, "machine_type must be a plain name"),
        ({"emulator": "../sh"}, "emulator must be a plain name"),
        ({"port_map": {"ssh": "22,hostfwd=x"}}, "port_map: ssh must be a port"),
        ({"volumes": ["a:b"]}, "qemu has no option 'volumes'"),
        ({"image_path": ""}, "image_path must be set"),
    ],
)
def test_bad_options_are_told(config: dict[str, object], said: str) -> None:
    assert said in "; ".join(problems(**config))


def test_only_allowed_emulators_run() -> None:
    allowed = QemuSettings(emulators_allowlist=("qemu-system-arm",))
    assert "emulators_allowlist" in problems(settings=allowed, emulator="qemu-system-x86_64")[0]
