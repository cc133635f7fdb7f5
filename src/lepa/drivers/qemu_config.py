"""Pure: a virtual machine's task and `config` block -> the command line of QEMU, and what a job may put into it.

Whatever a job names goes into one value of one flag: a comma in a path is doubled, everything else has a fixed
alphabet. The job's own `args` may use only flags that reach nothing of the host, unless the operator allows others
(CVE-2021-43415).
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from lepa.drivers import options
from lepa.drivers.docker_config import mapping_of
from lepa.drivers.protocol import TaskConfig

OPTIONS = options.Options(
    "qemu",
    {
        "image_path": "text",
        "emulator": "text",
        "machine_type": "text",
        "drive_interface": "text",
        "accelerator": "text",
        "graceful_shutdown": "bool",
        "guest_agent": "bool",
        "args": "texts",
        "port_map": "map",
    },
    required=("image_path",),
)

INTERFACES = ("ide", "scsi", "sd", "mtd", "floppy", "pflash", "virtio", "none")
ACCELERATORS = ("tcg", "kvm", "xen", "hvf", "hax", "nvmm", "whpx")
HARMLESS_ARGS = (
    "-cpu",
    "-enable-kvm",
    "-name",
    "-no-acpi",
    "-no-hpet",
    "-no-reboot",
    "-no-shutdown",
    "-no-user-config",
    "-nodefaults",
    "-nographic",
    "-rtc",
    "-smp",
    "-snapshot",
    "-uuid",
    "-vga",
)
"""Flags that name no file, device or socket of the host: what a job may use where the operator lists nothing."""
ANY = "*"
MONITOR, GUEST_AGENT = "qemu-monitor.sock", "qemu-guest-agent.sock"
"""Sockets in the task's directory, in which QEMU runs: a whole path may be too long for a socket address."""
_WORD = re.compile(r"[A-Za-z0-9._-]+")


class QemuSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agent's `plugin "qemu"` block.

    image_paths: directories outside of allocations whose images jobs may use. args_allowlist: flags that `args` may
    hold; empty: those that reach nothing of the host; "*": all. emulators_allowlist: programs that `emulator` may name;
    empty: every installed qemu-system-….
    """

    image_paths: tuple[str, ...] = ()
    args_allowlist: tuple[str, ...] = ()
    emulators_allowlist: tuple[str, ...] = ()


def config_problems(config: Mapping[str, Any], settings: QemuSettings) -> list[str]:
    """What is wrong with a `config` block here, one sentence each."""
    found = OPTIONS.problems(config)
    if found:
        return found
    interface = options.text(config, "drive_interface", "ide")
    if interface not in INTERFACES:
        found.append(f"drive_interface must be one of {', '.join(INTERFACES)}, found {interface!r}")
    for accelerator in options.text(config, "accelerator", "tcg").split(":"):
        if accelerator not in ACCELERATORS:
            found.append(f"accelerator must be one of {', '.join(ACCELERATORS)}, found {accelerator!r}")
    for name in ("machine_type", "emulator"):
        value = options.text(config, name, "x")
        if not _WORD.fullmatch(value):
            found.append(f"{name} must be a plain name, found {value!r}")
    emulator = options.text(config, "emulator")
    if emulator and settings.emulators_allowlist and emulator not in settings.emulators_allowlist:
        found.append(f"emulator {emulator!r} is not among those allowed on this node (emulators_allowlist)")
    for label, port in options.mapping(config, "port_map").items():
        if not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
            found.append(f"port_map: {label} must be a port of the guest, found {port!r}")
    return found + _argument_problems(options.texts(config, "args"), settings.args_allowlist)


def _argument_problems(args: Sequence[str], listed: Sequence[str]) -> list[str]:
    allowed = {_flag(each) for each in listed or HARMLESS_ARGS}
    if _flag(ANY) in allowed:
        return []
    found = [
        f"args: {word} is not among the flags allowed on this node (args_allowlist: {', '.join(sorted(allowed))})"
        for word in args
        if word.startswith("-") and _flag(word) not in allowed
    ]
    if args and not args[0].startswith("-"):
        found.append(f"args must begin with a flag, found {args[0]!r}")
    for before, word in pairwise(args):
        if not word.startswith("-") and not before.startswith("-"):
            found.append(f"args: {word!r} follows no flag; QEMU would take it for a disk image")
    return found


def _flag(word: str) -> str:
    """QEMU takes "-smp" and "--smp" alike."""
    return "-" + word.lstrip("-")


def command_line(program: str, task: TaskConfig, image: str, image_format: str) -> tuple[str, ...]:
    """QEMU's command line. image: its real path on the host; image_format: "raw" or "qcow2". Raises DriverError."""
    config = task.config
    accelerator = options.text(config, "accelerator", "tcg")
    machine = options.text(config, "machine_type", "pc")
    drive = f"file={_value(image)},format={image_format},if={options.text(config, 'drive_interface', 'ide')}"
    words = [program, "-machine", f"type={machine},accel={accelerator}"]
    words += ["-name", f"lepa-{task.alloc_id[:8]}"]
    words += ["-m", f"{max(1, task.resources.memory.memory_mb or task.memory_mb)}M", "-drive", drive, "-nographic"]
    if accelerator == "kvm":
        words += ["-cpu", "host"]
    if cores := task.resources.cpu.reserved_cores:
        words += ["-smp", str(len(cores))]
    if options.flag(config, "graceful_shutdown"):
        words += ["-monitor", f"unix:{MONITOR},server=on,wait=off"]
    if options.flag(config, "guest_agent"):
        words += ["-device", "virtio-serial", "-chardev", f"socket,path={GUEST_AGENT},server=on,wait=off,id=qga0"]
        words += ["-device", "virtserialport,chardev=qga0,name=org.qemu.guest_agent.0"]
    words += options.texts(config, "args")
    if forwards := _forwards(task):
        words += ["-netdev", "user,id=user.0" + forwards, "-device", "virtio-net,netdev=user.0"]
    return tuple(words)


def _value(text: str) -> str:
    """A text as part of a list of options: only commas have a meaning there."""
    return text.replace(",", ",,")


def _forwards(task: TaskConfig) -> str:
    """Ports of the host, or of the group's network, that lead into the guest; both protocols for each label."""
    found = ""
    for label, guest in options.mapping(task.config, "port_map").items():
        port = mapping_of(task, label)
        if task.network_namespace:
            outside = f":{port.to if port.to > 0 else port.value}"
        else:
            outside = f"{port.host_ip}:{port.value}"
        found += "".join(f",hostfwd={protocol}:{outside}-:{guest}" for protocol in ("tcp", "udp"))
    return found
