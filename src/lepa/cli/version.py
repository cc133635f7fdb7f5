"""`lepa version`."""

import json as json_text
import platform

import click

from lepa import __version__
from lepa.cli.flags import command, flag

SPOKEN = "1.9.5"
"""The version of Nomad whose API is spoken; the agent tells the same."""


@command()
@flag("json", "As JSON, with the version of Nomad's API that is spoken.")
def version(json: bool) -> None:
    """Print the version of lepa."""
    if json:
        facts = {"Version": __version__, "NomadAPI": SPOKEN, "Python": platform.python_version()}
        click.echo(json_text.dumps(facts))
        return
    click.echo(f"lepa v{__version__}")
