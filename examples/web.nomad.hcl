# A small web service in two instances. Needs nothing but python3 on the node.
job "web" {
  group "web" {
    count = 2

    network {
      port "http" {}
    }

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

    update {
      min_healthy_time = "1s"
    }

    task "server" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args = ["-c", <<EOF
echo "instance ${NOMAD_ALLOC_INDEX} of ${NOMAD_JOB_NAME}, allocation ${NOMAD_SHORT_ALLOC_ID}" > ${NOMAD_TASK_DIR}/index.html
exec python3 -m http.server --directory ${NOMAD_TASK_DIR} --bind ${NOMAD_IP_http} ${NOMAD_PORT_http}
EOF
        ]
      }

      resources {
        cpu    = 50
        memory = 64
      }
    }
  }
}
