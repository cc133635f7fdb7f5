"""The demonstration behind `script/demo`: an agent, a web service found by name, a model that reads digits.

Everything lives in a temporary folder and is stopped and removed at the end. `--once` exits after the last step.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LEPA = Path(sys.executable).with_name("lepa")
WANTED_PORTS = {"http": 4646, "rpc": 4647, "dns": 8600}
START_S, SERVICE_S, STOP_S = 20.0, 60.0, 20.0
APPLICATION, MODEL = "digits", "digits"
OBJECTIVE_MICROS = 100_000
QUESTIONS = 20


def say(text: str = "") -> None:
    """One line, at once."""
    print(text, flush=True)


def step(number: int, text: str) -> None:
    """The headline of a step."""
    say(f"\n[{number}/5] {text}")


def is_free(port: int) -> bool:
    """Whether nobody listens on a port of loopback, TCP and UDP."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


def ports() -> dict[str, int]:
    """The usual ports when all of them are free, else free ones."""
    if all(is_free(port) for port in WANTED_PORTS.values()):
        return WANTED_PORTS
    with contextlib.ExitStack() as stack:
        probes = {name: stack.enter_context(socket.socket()) for name in WANTED_PORTS}
        for probe in probes.values():
            probe.bind(("127.0.0.1", 0))
        return {name: probe.getsockname()[1] for name, probe in probes.items()}


@contextlib.contextmanager
def agent(folder: Path, chosen: dict[str, int]) -> Iterator[str]:
    """A development agent; its HTTP address."""
    config = folder / "agent.json"
    config.write_text(json.dumps({"ports": chosen, "log_level": "INFO"}))
    log = (folder / "agent.log").open("wb")
    command = [str(LEPA), "agent", "-dev", "-config", str(config), "-data-dir", str(folder / "data")]
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    address = f"http://127.0.0.1:{chosen['http']}"
    try:
        wait_until_healthy(process, address, folder / "agent.log")
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def wait_until_healthy(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    """Return when the agent answers that it is well."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"the agent ended with code {process.returncode}:\n{log.read_text()}")
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/v1/agent/health", timeout=2) as answer:
            if answer.status == 200:
                return
        time.sleep(0.05)
    sys.exit(f"the agent was not healthy within {START_S:g} s:\n{log.read_text()}")


def run(address: str, *arguments: str) -> None:
    """Run a lepa command as a person would, its output shown."""
    say(f"  $ lepa {' '.join(arguments)}")
    environment = os.environ | {"LEPA_ADDR": address}
    done = subprocess.run([str(LEPA), *arguments], env=environment, capture_output=True, text=True)
    for line in (done.stdout + done.stderr).rstrip().splitlines():
        say(f"    {line}")
    if done.returncode != 0:
        sys.exit(f"lepa {arguments[0]} failed with code {done.returncode}")


def find_web(dns_port: int) -> None:
    """Ask DNS for the service and each instance for its page."""
    from lepa.serving.addresses import Address
    from lepa.serving.addressing import SrvDnsProvider

    provider = SrvDnsProvider(Address("127.0.0.1", dns_port))
    deadline = time.monotonic() + SERVICE_S
    while len(records := provider.resolve("web").places) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    say("  web.service.consul SRV:")
    for record in records:
        host, port = record.address
        with urllib.request.urlopen(f"http://{host}:{port}/", timeout=5) as page:
            say(f"    {host}:{port}  ->  {page.read().decode().strip()}")


def deploy_digits(address: str) -> Any:
    """Fit a classifier, deploy it with two replicas, and give back the connection and the digits it has not seen."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split

    from lepa.serving import deployers
    from lepa.serving.connection import ClipperConnection
    from lepa.serving.container_managers.jobs import JobsContainerManager

    pixels, truth = load_digits(return_X_y=True)
    seen, unseen, seen_truth, unseen_truth = train_test_split(pixels / 16.0, truth, test_size=0.25, random_state=7)
    classifier = LogisticRegression(max_iter=200).fit(seen, seen_truth)
    accuracy = classifier.score(unseen, unseen_truth)
    say(f"  fitted on {len(seen)} digits; accuracy on {len(unseen)} others: {accuracy:.3f}")
    connection = ClipperConnection(JobsContainerManager(address.removeprefix("http://"), cluster_name="demo"))
    connection.start_clipper()
    say(f"  query frontend at http://{connection.get_query_addr()}")
    connection.register_application(APPLICATION, "doubles", "-1", OBJECTIVE_MICROS)
    deployers.deploy_sklearn_model(connection, MODEL, 1, "doubles", classifier, num_replicas=2)
    connection.link_model_to_app(APPLICATION, MODEL)
    say("  model digits:1 deployed with 2 replicas")
    return connection, unseen, unseen_truth


def ask(connection: Any, pixels: Any, truth: Any) -> None:
    """Ask about some digits, each in its own request."""
    say("    digit  prediction  truth  latency")
    right = 0
    for number in range(QUESTIONS):
        started = time.perf_counter()
        answer = connection.predict(APPLICATION, pixels[number].tolist())
        milliseconds = (time.perf_counter() - started) * 1000
        right += int(answer["output"]) == int(truth[number])
        mark = " (default)" if answer.get("default") else ""
        say(f"    {number + 1:>5}  {answer['output']!s:>10}  {truth[number]:>5}  {milliseconds:5.1f} ms{mark}")
    say(f"  {right} of {QUESTIONS} right")


def where_next(address: str, dns_port: int, query: object) -> None:
    """What to try while it runs."""
    values = "[" + ", ".join(["0"] * 64) + "]"
    say("\nRunning. Try in another terminal:")
    say(f"  export LEPA_ADDR={address}")
    say(f"  {LEPA} status                      # jobs; `lepa job status web` for one")
    say(f"  {LEPA} alloc logs -f -job web      # its output")
    say(f"  dig @127.0.0.1 -p {dns_port} web.service.consul SRV")
    say(f"  curl -d '{{\"input\": {values}}}' http://{query}/{APPLICATION}/predict")
    say(f"  curl {address}/v1/jobs             # Nomad's HTTP API")
    say("Press Ctrl-C to stop everything.")


def demonstrate(folder: Path, *, once: bool) -> None:
    """All steps."""
    chosen = ports()
    step(1, f"starting an agent in {folder} (HTTP {chosen['http']}, DNS {chosen['dns']})")
    with agent(folder, chosen) as address:
        say(f"  {address} is healthy")
        step(2, "running a web service from examples/web.nomad.hcl")
        run(address, "job", "run", str(ROOT / "examples" / "web.nomad.hcl"))
        step(3, "finding it by name")
        find_web(chosen["dns"])
        step(4, "deploying a classifier of handwritten digits")
        connection, pixels, truth = deploy_digits(address)
        step(5, f"asking it about {QUESTIONS} digits")
        ask(connection, pixels, truth)
        where_next(address, chosen["dns"], connection.get_query_addr())
        if not once:
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
        say("\nstopping everything")
    say("stopped")


def main() -> int:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(prog="script/demo", description=__doc__)
    parser.add_argument("--once", action="store_true", help="exit after the last step")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="lepa-demo-"))
    try:
        demonstrate(folder, once=arguments.once)
    except KeyboardInterrupt:
        say("\nstopped")
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
