"""A virtual machine that needs no operating system: a boot sector that says it is up and obeys the power button.

It boots in about a second under emulation, prints "GUEST READY" on the serial line, asks ACPI to tell of the power
button (PM1_EN), sleeps between timer ticks, and switches the machine off when the button is pressed (PM1_STS, then
SLP_EN in PM1_CNT). The ports are where SeaBIOS puts the PIIX4's power management block on QEMU's `pc`: 0x600.
"""

from pathlib import Path

QEMU_PACKAGES = "qemu-system-x86 qemu-utils"
READY = "GUEST READY"

_ENABLE = bytes.fromhex("FA 31C0 8ED8 BA0206 B80001 EF")
"""cli; ds = 0; PM1_EN = power button."""
_PRINT = bytes.fromhex("AC 84C0 7406 BAF803 EE EBF5")
"""Bytes at ds:si to the serial port until a zero."""
_WATCH = bytes.fromhex("FB F4 BA0006 ED F6C401 74F5")
"""sti; hlt; until PM1_STS has the power button."""
_OFF = bytes.fromhex("BA0406 B80020 EF F4 EBFD")
"""PM1_CNT = SLP_EN, then nothing more."""
_LOADED_AT = 0x7C00


def boot_disk(path: Path, says: str = READY) -> Path:
    """Write a disk of 512 KiB with that boot sector."""
    rest = _PRINT + _WATCH + _OFF
    text_at = _LOADED_AT + len(_ENABLE) + 3 + len(rest)
    code = _ENABLE + b"\xbe" + text_at.to_bytes(2, "little") + rest + says.encode() + b"\r\n\0"
    sector = code.ljust(510, b"\0") + b"\x55\xaa"
    path.write_bytes(sector.ljust(512 * 1024, b"\0"))
    return path
