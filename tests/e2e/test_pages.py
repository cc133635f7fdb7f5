"""The pages of a running agent in a real browser: what a person sees, and what a click does."""

from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.browser import TEXT, Browser, Tab, chromium
from tests.e2e.agents import Agent, eventually, running
from tests.e2e.jobs import WAIT, quick_update, shell_job

HOSTILE = "<img src=x onerror=document.title='taken'>"
SCRIPT = "<script>document.title='taken'</script>"
NAMED = """[...document.querySelectorAll("a, button, input, select")].filter((each) => each.checkVisibility()
  && !(each.innerText || each.ariaLabel || each.labels?.length || each.title || each.querySelector("[aria-label]")))
  .map((each) => each.outerHTML)"""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent with a service, a hostile job and one that fits nowhere."""
    label = {"ui": {"label": {"text": "test cluster", "background_color": "#a00000"}}}
    with running(tmp_path_factory.mktemp("pages"), settings=label) as made:
        made.run(web_job())
        made.run(shell_job("evil", Name=HOSTILE, Meta={"note": SCRIPT}, UI={"Description": SCRIPT, "Links": LINKS}))
        made.run(shell_job("huge", task={"Resources": {"CPU": 20, "MemoryMB": 10_000_000}}))
        made.put("/v1/var/app/config", {"Path": "app/config", "Items": {"password": "swordfish"}})
        made.running("web", 2)
        yield made
        for stub in made.get("/v1/jobs"):
            made.purge(stub["ID"])


LINKS = [{"Label": "bad", "URL": "javascript:document.title='taken'"}, {"Label": "good", "URL": "https://a.example/"}]


def web_job() -> dict[str, Any]:
    service = {"Name": "page", "PortLabel": "http", "Provider": "nomad", "Tags": ["first"]}
    group = {"Networks": [{"DynamicPorts": [{"Label": "http"}]}], "Services": [service]}
    return shell_job("web", f"echo to-out; echo to-err >&2; sleep 2; echo later; {WAIT}", count=2, group=group)


@pytest.fixture(scope="module")
def chromium_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with chromium(tmp_path_factory.mktemp("browser")) as port:
        yield port


@pytest.fixture
async def browser(chromium_port: int) -> AsyncIterator[Browser]:
    async with Browser(chromium_port) as made:
        yield made


async def well(tab: Tab) -> None:
    """Nothing was complained of, nothing ran that should not, and every control has a name."""
    assert (tab.problems, tab.dialogs) == ([], [])
    assert "taken" not in await tab.evaluate("document.title")
    assert await tab.evaluate(NAMED) == []


async def test_every_page_shows_what_there_is(agent: Agent, browser: Browser) -> None:
    node = agent.get("/v1/nodes")[0]
    tab = await browser.open(f"{agent.address}/")
    await tab.sees("Jobs", "web", "2/2 running", "huge", "waiting", "test cluster", HOSTILE)
    assert await tab.evaluate("location.pathname") == "/ui/jobs"
    assert await tab.evaluate("document.title") == "Jobs · lepa"
    await well(tab)
    for path, texts in {
        "clients": ("Nodes", node["Name"], "ready", "eligible", "% of"),
        f"clients/{node['ID']}": (node["Name"], "CPU allotted", "Memory in use", "raw_exec", "Node registered", "web"),
        "topology": ("Topology", "1 node", node["Name"], "CPU", "web"),
        "servers": ("Servers", "leader", "alive", "healthy"),
        "services": ("page", "2/2 passing", "first"),
        "services/page?namespace=default": ("page", "passing", "web"),
        "evaluations": ("the job was submitted", "main: 1 not placed: 1 node without enough memory"),
        "variables": ("app/config",),
        "models": ("No models are served yet", "lepa model deploy"),
        "settings/tokens": ("Sign in", "forgotten when it is closed"),
        "jobs/huge@default": ("Waiting for room", "the group asks for 10000000 MiB of memory"),
        "jobs/web@default/allocations": ("running", node["Name"]),
        "jobs/web@default/placement": ("Group main", "chosen", "full by CPU"),
        "jobs/web@default/evaluations": ("the job was submitted", "everything is placed"),
        "jobs/web@default/versions": ("#0", "current"),
        "jobs/web@default/definition": ("As JSON",),
        "jobs/nothing@default": ("Not found", "job not found"),
        "nowhere": ("No such page",),
    }.items():
        await tab.go(f"{agent.address}/ui/{path}")
        seen = await tab.sees(*texts)
        assert "swordfish" not in seen
        await well(tab)


async def test_hostile_texts_stay_texts(agent: Agent, browser: Browser) -> None:
    tab = await browser.open(f"{agent.address}/ui/jobs")
    await tab.click("a", HOSTILE)
    await tab.sees(HOSTILE, SCRIPT, "good", "Newest allocations")
    assert await tab.evaluate("document.querySelectorAll('main img, main script').length") == 0
    links = await tab.evaluate("[...document.querySelectorAll('.links a')].map((each) => each.href)")
    assert links == ["https://a.example/"]
    await tab.go(f"{agent.address}/ui/jobs/{quote(HOSTILE, safe='')}@{quote(SCRIPT, safe='')}")
    await tab.sees("Not found")
    await well(tab)


def state(word: str) -> str:
    """Whether the headline says so."""
    return f"document.querySelector('h1 ~ .badge')?.innerText === '{word}'"


async def test_a_job_is_scaled_stopped_and_started_by_clicks(agent: Agent, browser: Browser) -> None:
    agent.run(shell_job("clicked"))
    tab = await browser.open(f"{agent.address}/ui/jobs")
    await tab.type("input[type=search]", "CLICK")
    await tab.until("document.querySelectorAll('tbody tr').length === 1")
    await tab.click("a", "clicked")
    await tab.sees("1 running", "raw_exec")
    await tab.click("button", "One main more")
    await tab.sees("main is scaled to 2.", "2 running")
    agent.running("clicked", 2)
    await tab.click("button", "Stop")
    await tab.sees("All its allocations are stopped")
    await tab.click("dialog button", "Stop the job")
    await tab.sees("clicked is being stopped.")
    await tab.until(state("stopped"))
    await tab.click("button", "Start")
    await tab.until(state("running"))
    agent.running("clicked", 2)
    await tab.evaluate("history.back()")
    await tab.sees("Jobs", "web")
    await well(tab)


async def test_runs_of_a_periodic_job_are_listed(agent: Agent, browser: Browser) -> None:
    periodic = {"Spec": "0 0 1 1 *", "SpecType": "cron", "Enabled": True}
    agent.run(shell_job("yearly", "true", kind="batch", Periodic=periodic))
    tab = await browser.open(f"{agent.address}/ui/jobs/yearly@default")
    await tab.sees("Runs at", "0 0 1 1 *")
    await tab.click("button", "Run now")
    await tab.sees("It runs now.", "yearly/periodic-")
    await tab.until(f"{TEXT}.includes('complete')")
    await well(tab)


LOOKED_AT = """Object.defineProperty(document, "hidden", {{ get: () => {}, configurable: true }});
  document.dispatchEvent(new Event("visibilitychange"))"""
FIGURES = {"rate_1min": 42.0, "p50_ms": 2.0, "p99_ms": 7.5, "predictions": 10}
TOP = {
    "applications": [FIGURES | {"name": "digits", "defaults": 1, "slo_ms": 20.0, "arms": ["svm:2"], "policy": "Exp3"}],
    "models": [
        FIGURES
        | {"model": "svm", "version": "2", "replicas": 1, "queued": 3, "failures": 0, "batch_p50": 4, "batch_limit": 9}
    ],
}


async def test_models_show_what_their_query_frontends_say(agent: Agent, browser: Browser) -> None:
    async def top(request: web.Request) -> web.Response:
        return web.json_response(TOP)

    app = web.Application()
    app.router.add_get("/top", top)
    agent.run(shell_job("clipper-c-mgmt", Meta={"clipper_cluster": "c"}))
    named = {"clipper_cluster": "c", "model_name": "svm", "model_version": "2", "input_type": "doubles"}
    agent.run(shell_job("clipper-c-model-svm-2", Meta=named))
    async with TestServer(app) as frontend:
        where = {"Address": "127.0.0.1", "Port": frontend.port, "JobID": "clipper-c-mgmt"}
        node = agent.get("/v1/nodes")[0]
        where |= {"NodeID": node["ID"], "Datacenter": node["Datacenter"]}
        agent.put("/v1/service/clipper-c-query-frontend-service/one", where)
        tab = await browser.open(f"{agent.address}/ui/models")
        address = f"127.0.0.1:{frontend.port}"
        await tab.sees("Serving cluster c", address, "digits", "svm:2", "7.5 ms", "10 %", "1/1 running", "4 of 9")
    await well(tab)
    agent.delete("/v1/service/clipper-c-query-frontend-service/one")
    for job in ("clipper-c-mgmt", "clipper-c-model-svm-2"):
        agent.purge(job)


async def test_canaries_are_promoted_by_a_click(agent: Agent, browser: Browser) -> None:
    update = quick_update(Canary=1)
    agent.run(shell_job("canaries", Update=update))
    agent.running("canaries")
    changed = shell_job("canaries", Update=update, task={"Env": {"NEW": "1"}})
    agent.run(changed)
    tab = await browser.open(f"{agent.address}/ui/jobs/canaries@default")
    await tab.sees("1/1", "Promote", "Fail")
    eventually(lambda: agent.get("/v1/job/canaries/deployment")["TaskGroups"]["main"]["HealthyAllocs"])
    await tab.click("button", "Promote")
    await tab.sees("The canaries are promoted.", "successful")
    await tab.click("a", "Versions")
    await tab.sees("#1", "#0", "NEW")
    await well(tab)


async def test_an_allocation_tells_its_tasks_ports_and_logs_as_they_come(agent: Agent, browser: Browser) -> None:
    alloc = agent.running("web", 2)[0]
    port = alloc_port(agent, alloc["ID"])
    tab = await browser.open(f"{agent.address}/ui/allocations/{alloc['ID']}")
    seen = await tab.sees("main", "running", "Task started by client", f":{port}", "of 16 MiB", "to-out", "to-err")
    assert alloc["ID"] in seen
    assert "to-err" in await tab.evaluate("document.getElementById('log-stderr').innerText")
    await tab.until("document.getElementById('log-stdout').innerText.trim() === 'to-out\\nlater'")
    await tab.click("td button", "Restart")
    await tab.sees("main is restarted.", "Restart Signaled")
    await well(tab)
    agent.running("web", 2)


async def test_why_tasks_failed_is_seen_on_the_page_of_the_job(agent: Agent, browser: Browser) -> None:
    broken = {"EmbeddedTmpl": "{{ nope }}", "DestPath": "local/x"}
    agent.run(shell_job("broken", group={"ReschedulePolicy": {"Attempts": 0}}, task={"Templates": [broken]}))
    tab = await browser.open(f"{agent.address}/ui/jobs/broken")
    await tab.sees("failed", 'template: line 1: function "nope" not defined')
    (alloc,) = agent.get("/v1/job/broken/allocations")
    await tab.go(f"{agent.address}/ui/allocations/{alloc['ID']}")
    await tab.sees("Last event", 'template: line 1: function "nope" not defined', "Nothing was written.")
    await well(tab)


def alloc_port(agent: Agent, alloc_id: str) -> int:
    return int(agent.get(f"/v1/allocation/{alloc_id}")["AllocatedResources"]["Shared"]["Ports"][0]["Value"])


async def test_what_happens_is_seen_while_somebody_looks(agent: Agent, browser: Browser) -> None:
    node = agent.get("/v1/nodes")[0]["ID"]
    tab = await browser.open(f"{agent.address}/ui/jobs")
    await tab.sees("web")
    agent.run(shell_job("newcomer"))
    await tab.sees("newcomer", "1/1 running")
    await tab.evaluate(LOOKED_AT.format("true"))
    agent.run(shell_job("unseen"))
    agent.running("unseen")
    assert "unseen" not in await tab.evaluate(TEXT)
    await tab.evaluate(LOOKED_AT.format("false"))
    await tab.sees("unseen", "1/1 running")
    await tab.go(f"{agent.address}/ui/clients/{node}")
    await tab.click("button", "Take no more")
    await tab.sees("ineligible", "Take work again")
    assert agent.get(f"/v1/node/{node}")["SchedulingEligibility"] == "ineligible"
    await tab.click("button", "Take work again")
    await tab.sees("takes work again.", "Take no more")
    await well(tab)
