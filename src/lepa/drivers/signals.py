"""Pure: signals by name, as job files and the API give them."""

from lepa.model.errors import invalid

NUMBERS = {
    "SIGHUP": 1,
    "SIGINT": 2,
    "SIGQUIT": 3,
    "SIGILL": 4,
    "SIGTRAP": 5,
    "SIGABRT": 6,
    "SIGIOT": 6,
    "SIGBUS": 7,
    "SIGFPE": 8,
    "SIGKILL": 9,
    "SIGUSR1": 10,
    "SIGSEGV": 11,
    "SIGUSR2": 12,
    "SIGPIPE": 13,
    "SIGALRM": 14,
    "SIGTERM": 15,
    "SIGSTKFLT": 16,
    "SIGCHLD": 17,
    "SIGCONT": 18,
    "SIGSTOP": 19,
    "SIGTSTP": 20,
    "SIGTTIN": 21,
    "SIGTTOU": 22,
    "SIGURG": 23,
    "SIGXCPU": 24,
    "SIGXFSZ": 25,
    "SIGVTALRM": 26,
    "SIGPROF": 27,
    "SIGWINCH": 28,
    "SIGIO": 29,
    "SIGPWR": 30,
    "SIGSYS": 31,
}
"""Linux on the architectures lepa runs on (x86, ARM, RISC-V)."""


def signal_number(name: str, default: str = "SIGTERM") -> int:
    """The number of a signal: "SIGHUP", "HUP" or "hup"; "" is the default. Raises LepaError(invalid)."""
    wanted = (name or default).upper()
    number = NUMBERS.get(wanted) or NUMBERS.get("SIG" + wanted)
    if number is None:
        raise invalid(f'invalid signal "{name}"; use a name such as SIGTERM or SIGHUP')
    return number
