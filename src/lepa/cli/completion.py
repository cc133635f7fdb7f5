"""`lepa completion`: what a shell needs to complete commands and flags."""

import click

from lepa.cli.flags import argument, command
from lepa.model.errors import invalid

SHELLS = ("bash", "zsh", "fish")


@command()
@argument("shell", shown="<bash|zsh|fish>")
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    For bash, put `eval "$(lepa completion bash)"` into ~/.bashrc; for zsh the same with zsh into ~/.zshrc; for fish,
    write the output to ~/.config/fish/completions/lepa.fish.
    """
    from click.shell_completion import get_completion_class

    from lepa.cli.main import root

    kind = get_completion_class(shell)
    if kind is None or shell not in SHELLS:
        raise invalid(f'no completion for "{shell}"; there is one for {", ".join(SHELLS)}')
    click.echo(kind(root(), {}, "lepa", "_LEPA_COMPLETE").source())
