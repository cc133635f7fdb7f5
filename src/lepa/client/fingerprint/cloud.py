"""Instance id and type from a cloud's metadata service (the one at AWS's address and paths).

Asked only when the settings name an address. Version 2's session token is used where the service offers it. A host that
does not answer within a second is not in that cloud.
"""

import urllib.error
import urllib.request

from lepa.client.fingerprint.facts import Facts

TIMEOUT_S = 1.0
ANSWER_MAX = 4096
TOKEN_S = "60"
PATHS = {
    "unique.platform.aws.ami-id": "ami-id",
    "unique.platform.aws.hostname": "hostname",
    "unique.platform.aws.instance-id": "instance-id",
    "platform.aws.instance-type": "instance-type",
    "unique.platform.aws.local-hostname": "local-hostname",
    "unique.platform.aws.local-ipv4": "local-ipv4",
    "unique.platform.aws.public-hostname": "public-hostname",
    "unique.platform.aws.public-ipv4": "public-ipv4",
    "platform.aws.placement.availability-zone": "placement/availability-zone",
}


def aws(base_url: str) -> Facts:
    """What the metadata service at `base_url` says; nothing when it does not answer. Blocks: call it in a thread."""
    root = base_url.rstrip("/")
    token = _ask(f"{root}/latest/api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": TOKEN_S})
    headers = {"X-aws-ec2-metadata-token": token} if token else {}
    if not (instance := _ask(f"{root}/latest/meta-data/instance-id", headers=headers)):
        return Facts()
    attributes = {
        name: value
        for name, path in PATHS.items()
        if (value := _ask(f"{root}/latest/meta-data/{path}", headers=headers))
    }
    zone = attributes.get("platform.aws.placement.availability-zone", "")
    return Facts(attributes, {"aws.ec2": f"{zone}.{instance}" if zone else instance})


def _ask(url: str, *, method: str = "GET", headers: dict[str, str] | None = None) -> str:
    try:
        request = urllib.request.Request(url, method=method, headers=headers or {})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return str(answer.read(ANSWER_MAX).decode("utf-8", "replace")).strip()
    except (urllib.error.URLError, OSError, ValueError):
        return ""
