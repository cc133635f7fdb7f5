"""`lepa job init`: an example that runs on any Linux machine with `lepa agent -dev`."""

import shutil
import sys
from pathlib import Path

import click

from lepa.cli.flags import argument, command, flag, option
from lepa.model.errors import LepaError, conflict, invalid

FILE_NAME = "example.nomad.hcl"
USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"


@command()
@argument("file", required=False)
@flag("short", "Without explanations.")
@flag("connect", "An example with Consul's service mesh, which is not part of lepa.", hidden=True)
@option("template", "Another example: batch, periodic or parameterized.", default="", metavar="name")
@flag("list-templates", "List the examples.")
def init(file: str | None, short: bool, connect: bool, template: str, list_templates: bool) -> None:
    """Write an example job file, example.nomad.hcl unless named otherwise."""
    if list_templates:
        click.echo("\n".join(["service", *sorted(TEMPLATES)]))
        return
    if connect:
        raise LepaError("unsupported", "there is no service mesh here: services find each other by name")
    if template not in ("", "service", *TEMPLATES):
        raise invalid(f'there is no example "{template}"; there are service, {", ".join(sorted(TEMPLATES))}')
    path = Path(file or FILE_NAME)
    text = TEMPLATES.get(template) or example(python(), short=short)
    try:
        with path.open("x", encoding="utf-8") as written:
            written.write(text)
    except FileExistsError as error:
        raise conflict(f"Job file '{path}' already exists; name another one: lepa job init FILE") from error
    except OSError as error:
        raise invalid(f"cannot write {path}: {error.strerror or error}") from error
    click.echo(f"Example job file written to {path}\nRun it with: lepa job run {path}")


def python() -> str:
    """A Python that a task finds: the system's, else the one that runs this program."""
    return "python3" if shutil.which("python3", path=USUAL_PATH) else sys.executable


def example(python: str, *, short: bool) -> str:
    """The text of the example; `python` serves its files."""
    text = EXAMPLE.replace("PYTHON", python)
    if not short:
        return text
    lines = [line for line in text.split("\n") if not line.lstrip().startswith("#")]
    kept = [line for n, line in enumerate(lines) if line or (n > 0 and lines[n - 1] and not lines[n - 1].endswith("{"))]
    return "\n".join(kept).lstrip("\n")


EXAMPLE = """\
# A web server that runs on any Linux machine.
#
#   lepa job run example.nomad.hcl
#   lepa job status example
#   lepa service info web
#   dig @127.0.0.1 -p 8600 web.service.consul SRV
#   lepa job stop example

job "example" {
  # service: runs until it is stopped. Others: batch, system, sysbatch.
  type = "service"

  # Which nodes may run it; * stands for anything.
  datacenters = ["*"]

  # How a new version replaces an old one: one at a time, each healthy for two
  # seconds before the next.
  update {
    max_parallel     = 1
    min_healthy_time = "2s"
    healthy_deadline = "1m"
    auto_revert      = false
  }

  # Tasks of a group run together on one node, count times.
  group "web" {
    count = 1

    network {
      # A free port of the node, known to tasks as ${NOMAD_PORT_http}.
      # Write `static = 8080` for a certain one.
      port "http" {}
    }

    # The name under which others find it, while its check passes.
    service {
      name     = "web"
      port     = "http"
      provider = "nomad"

      check {
        type     = "http"
        path     = "/"
        interval = "2s"
        timeout  = "1s"
      }
    }

    # What happens when a task ends: this many starts, then another node.
    restart {
      attempts = 2
      interval = "30m"
      delay    = "2s"
      mode     = "fail"
    }

    task "server" {
      # raw_exec: a plain process. Others: exec, docker.
      driver = "raw_exec"

      # Serves the files of the task's directory.
      config {
        command = "PYTHON"
        args    = ["-u", "-m", "http.server", "${NOMAD_PORT_http}", "--directory", "${NOMAD_TASK_DIR}"]
      }

      # MHz and MiB that are set aside for the task.
      resources {
        cpu    = 100
        memory = 64
      }
    }
  }
}
"""

_BATCH_GROUP = """\
  group "work" {
    task "work" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "echo SAID"]
      }

      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}
"""
TEMPLATES = {
    "batch": f"""\
# Runs once, to its end.
job "example" {{
  type = "batch"

{_BATCH_GROUP.replace("SAID", "done")}""",
    "periodic": f"""\
# Runs every quarter of an hour, never twice at once.
job "example" {{
  type = "batch"

  periodic {{
    crons            = ["*/15 * * * *"]
    prohibit_overlap = true
  }}

{_BATCH_GROUP.replace("SAID", "done")}""",
    "parameterized": f"""\
# Runs when it is dispatched: lepa job dispatch -meta who=you example
job "example" {{
  type = "batch"

  parameterized {{
    payload       = "optional"
    meta_required = ["who"]
  }}

{_BATCH_GROUP.replace("SAID", "hello $NOMAD_META_who")}""",
}
