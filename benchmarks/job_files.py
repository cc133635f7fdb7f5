"""How long does reading a job file take?

A file of 66 lines with variables, locals, templates and a dozen kinds of blocks, from text to the job: 0.5 ms.
Beside it HashiCorp's own parser in Go, which reads the structure only: 0.3 ms.
"""

from time import perf_counter

import pygohcl

from benchmarks.harness import Figure, median_of
from lepa.jobspec import parse

RUNS = 200

TEXT = """
variable "image" {
  type    = string
  default = "redis:7"
}
locals {
  tags = [for name in ["a", "b"] : "x-${name}"]
}
job "example" {
  datacenters = ["dc1"]
  type        = "service"
  group "cache" {
    count = 2
    network {
      port "db" { to = 6379 }
      port "admin" { static = 8080 }
    }
    restart {
      attempts = 2
      interval = "30m"
      delay    = "15s"
      mode     = "fail"
    }
    service {
      name     = "redis-cache"
      tags     = local.tags
      port     = "db"
      provider = "nomad"
      check {
        name     = "alive"
        type     = "tcp"
        interval = "10s"
        timeout  = "2s"
      }
    }
    constraint {
      attribute = "${attr.kernel.name}"
      value     = "linux"
    }
    task "redis" {
      driver = "docker"
      config {
        image          = var.image
        ports          = ["db"]
        auth_soft_fail = true
      }
      env {
        MODE = "x"
        PORT = "${NOMAD_PORT_db}"
      }
      template {
        data        = <<EOF
{{ with nomadVar "nomad/jobs/example" }}
A={{ .a }} ${var.image}
{{ end }}
EOF
        destination = "local/env"
        env         = true
      }
      resources {
        cpu    = 500
        memory = 256
      }
    }
  }
}
"""


def run() -> list[Figure]:
    """Milliseconds for one file."""
    return [
        Figure("jobspec.parse_ms", median_of(RUNS, ours), "ms", median_of(RUNS, theirs), "HashiCorp's parser in Go"),
    ]


def ours() -> float:
    start = perf_counter()
    assert parse(TEXT).job is not None
    return (perf_counter() - start) * 1000


def theirs() -> float:
    start = perf_counter()
    pygohcl.loads(TEXT)
    return (perf_counter() - start) * 1000
