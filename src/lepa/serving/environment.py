"""What a pickled model needs of the Python that reads it: which packages, in which versions.

A pickle names the modules that its classes and functions come from. `modules_named` reads those names without running
anything; `packages_of` finds the distributions behind them, with their versions as installed here; `check` holds them
against another process. Modules that belong to no distribution are a person's own files: they travel by value.
"""

import pickletools
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from types import ModuleType

from lepa.model.errors import LepaError

_TEXT_OPCODES = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"}
_NOT_NEEDED = {"cloudpickle"}
"""Distributions that every model process has."""


def python_version() -> str:
    """major.minor of this interpreter."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def modules_named(pickle: bytes) -> set[str]:
    """Top-level modules of this process that a pickle may refer to, standard library left out.

    STACK_GLOBAL takes the module's name from a string somewhere before it, so every string that is the name of an
    imported module counts: a name too many costs nothing but a line in the description.
    """
    named: set[str] = set()
    for opcode, argument, _ in pickletools.genops(pickle):
        if opcode.name in _TEXT_OPCODES or opcode.name in ("GLOBAL", "INST"):
            name = str(argument).partition(" ")[0]
            if name in sys.modules:
                named.add(name.partition(".")[0])
    return named - sys.stdlib_module_names - {"__main__", "builtins"}


def packages_of(modules: Iterable[str]) -> dict[str, str]:
    """Versions of the distributions that hold these top-level modules."""
    by_module = packages_distributions()
    names = {name for module in modules for name in by_module.get(module, ())}
    return versions(sorted(names - _NOT_NEEDED))


def versions(names: Iterable[str]) -> dict[str, str]:
    """The installed versions of some distributions; those that are not installed are left out."""
    found = {name: installed(name) for name in names}
    return {name: text for name, text in found.items() if text is not None}


def own_modules(modules: Iterable[str]) -> list[ModuleType]:
    """Those of these top-level modules that are files of a person, not of a distribution."""
    by_module = packages_distributions()
    return [
        module
        for name in sorted(modules)
        if name not in by_module
        and (module := sys.modules.get(name)) is not None
        and getattr(module, "__file__", None)
        and name != "lepa"
    ]


def installed(name: str) -> str | None:
    """The version of a distribution here, None when it is not."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def check(python: str, packages: Mapping[str, str]) -> None:
    """Raise LepaError(unsupported) with a sentence when a model made with these cannot be expected to run here."""
    if python != python_version():
        raise LepaError(
            "unsupported",
            f"the model was pickled by Python {python} and this process is Python {python_version()}; "
            "deploy it again from the Python that shall run it",
        )
    for name, made_with in packages.items():
        here = installed(name)
        if here is None or here.split(".")[0] != made_with.split(".")[0]:
            raise LepaError(
                "unsupported", f"the model needs {name} {made_with}; found {here or 'none'}; install it here"
            )
