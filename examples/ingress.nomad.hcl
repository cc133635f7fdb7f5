# The ingress on every node, as a job: for clusters whose agents do not run it themselves.
# Needs lepa on the nodes, since the task runs its program.
variable "lepa_python" {
  type        = string
  default     = "/usr/bin/python3"
  description = "A Python that has lepa."
}

job "ingress" {
  type = "system"

  group "ingress" {
    network {
      port "http" { static = 9999 }
      port "ui" { static = 9998 }
    }

    service {
      name     = "fabio"
      port     = "http"
      provider = "nomad"

      check {
        type     = "http"
        port     = "ui"
        path     = "/health"
        interval = "5s"
        timeout  = "2s"
      }
    }

    task "ingress" {
      driver = "raw_exec"

      # Longer than drain_s, so that what is under way comes to its end.
      kill_timeout = "15s"

      config {
        command = var.lepa_python
        args = [
          "-m", "lepa.ingress",
          "--agent", "http://${attr.unique.network.ip-address}:4646",
          "--http", "${NOMAD_PORT_http}",
          "--ui", "${NOMAD_PORT_ui}",
          "--ui-address", "0.0.0.0",
          "--drain-s", "10",
        ]
      }

      resources {
        cpu    = 500
        memory = 256
      }
    }
  }
}
