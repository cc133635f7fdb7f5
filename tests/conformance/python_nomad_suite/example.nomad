job "example" {
  type        = "service"
  datacenters = ["dc1"]

  update {
    max_parallel     = 1
    min_healthy_time = "100ms"
  }

  group "cache" {
    count = 1

    task "waiter" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "trap '' USR1; while :; do sleep 1; done"]
      }

      resources {
        cpu    = 20
        memory = 20
      }
    }
  }
}
