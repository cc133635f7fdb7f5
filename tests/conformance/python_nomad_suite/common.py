"""Where the agent under test is, for python-nomad's own tests."""

import os

IP = os.environ.get("NOMAD_IP", "127.0.0.1")
NOMAD_PORT = int(os.environ.get("NOMAD_PORT", "4646"))
NOMAD_TOKEN = os.environ.get("NOMAD_TOKEN", "")
NOMAD_NAMESPACE = "admin"
