"""`lepa version`."""

import click

from lepa import __version__
from lepa.cli.flags import command


@command()
def version() -> None:
    """Print the version of lepa."""
    click.echo(f"lepa v{__version__}")
