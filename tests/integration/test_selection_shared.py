"""What feedback teaches one query frontend, another one follows, and the management frontend remembers."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from lepa.kit.sources import SystemClock, SystemRandom
from lepa.model.errors import LepaError
from lepa.serving.addresses import Address
from lepa.serving.admin_client import call
from lepa.serving.frontend import FrontendSettings, QueryFrontend
from lepa.serving.management import ManagementFrontend
from lepa.serving.model_container import ContainerSettings, ModelContainer
from lepa.serving.registry_store import SqliteRegistryStore

SLO_MICROS = 500_000


async def eventually(done: Any) -> None:
    for _ in range(500):
        if await done():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not happen")


@asynccontextmanager
async def management(directory: Path, port: int = 0) -> AsyncIterator[ManagementFrontend]:
    store = SqliteRegistryStore(directory / "registry.sqlite")
    async with ManagementFrontend("127.0.0.1", port, store, None, SystemClock()) as made:
        yield made


@contextmanager
def model(name: str, output: str, frontend: QueryFrontend) -> Iterator[None]:
    address = Address("127.0.0.1", frontend.replicas.port)
    settings = ContainerSettings(name, "1", Path("/model"), "ints", address)
    container = ModelContainer(settings, lambda inputs: [output] * len(inputs))
    thread = threading.Thread(target=container.run)
    thread.start()
    try:
        yield
    finally:
        container.stop()
        thread.join()


async def ask(port: int, path: str, **body: Any) -> Any:
    return await asyncio.to_thread(call, Address("127.0.0.1", port), "POST", path, body)


async def test_feedback_to_one_frontend_moves_the_queries_of_another(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack, management(tmp_path) as admin:
        port = admin.port
        options = {"contexts": "user", "eta": 0.5}
        await ask(
            port,
            "/admin/add_app",
            name="app",
            input_type="ints",
            default_output="0",
            latency_slo_micros=SLO_MICROS,
            policy="exp4",
            policy_options=options,
        )
        for name in ("right", "wrong"):
            await ask(port, "/admin/add_model", model_name=name, model_version="1", input_type="ints")
        await ask(port, "/admin/add_model_links", app_name="app", model_names=["wrong", "right"])

        async def find() -> Address:
            return Address("127.0.0.1", port)

        settings = FrontendSettings(port=0, rpc_port=0, cache_bytes=0)
        first, second = [
            await stack.enter_async_context(QueryFrontend(settings, find, SystemClock(), SystemRandom()))
            for _ in range(2)
        ]
        for frontend in (first, second):
            stack.enter_context(model("right", "1", frontend))
            stack.enter_context(model("wrong", "2", frontend))

        async def output(frontend: QueryFrontend, uid: int = 0) -> Any:
            return (await ask(frontend.port, "/app/predict", input=[1], uid=uid))["output"]

        async def complete(frontend: QueryFrontend) -> bool:
            with suppress(LepaError):  # Until the frontend has read the registry there is no such application.
                answer = await ask(frontend.port, "/app/predict", input=[1])
                return not answer["default"] and bool(answer["confidence"] == 0.5)
            return False

        for frontend in (first, second):
            await eventually(partial(complete, frontend))
        assert await output(second) == 2

        async def knows(frontend: QueryFrontend) -> bool:
            return await output(frontend) == 1

        for _ in range(3):
            assert await ask(first.port, "/app/update", uid=7, input=[1], label=1.0) == "Feedback received? 1"
        await eventually(partial(knows, second))
        assert await output(second, uid=7) == 1

        for _ in range(6):
            await ask(second.port, "/app/update", uid=8, input=[1], label=2)

        async def user_differs() -> bool:
            return bool(await output(first, uid=8) == 2 and await output(first, uid=7) == 1)

        await eventually(user_differs)
        state = await ask(port, "/admin/get_state", app_name="app", uid=8)
        assert state["arms"]["wrong:1"][0] > state["arms"]["right:1"][0]

    async with management(tmp_path) as admin:
        assert await ask(admin.port, "/admin/get_state", app_name="app", uid=8) == state
        await ask(admin.port, "/admin/delete_app", name="app")
    async with management(tmp_path) as admin:
        assert admin._memory.get("app", "8") is None
