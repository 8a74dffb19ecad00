"""Both processes, started as one."""

import signal

import httpx
import pytest

from deadletter.testing.fakes import eventually
from servers.common import free_port
from systems.courier.rig import Rig

pytestmark = pytest.mark.xdist_group("mongodb_server")

PORT = str(free_port())


@pytest.fixture
def environ() -> dict[str, str]:
    return {"API_PORT": PORT}


async def is_up() -> bool:
    try:
        async with httpx.AsyncClient() as client:
            return (await client.get(f"http://127.0.0.1:{PORT}/health")).is_success
    except httpx.TransportError:
        return False


async def test_gateway_and_worker_start_work_and_end_together(rig: Rig) -> None:
    service = await rig.start("-m", "courier")
    await eventually(is_up, within=30)
    rig.url = f"http://127.0.0.1:{PORT}"

    await rig.report()
    await rig.until("processed")
    service.send_signal(signal.SIGTERM)
    await service.communicate()

    assert service.returncode == 0
    assert not await is_up()
    assert [one.event_id for one in rig.stand.seen] == ["evt_123"]


class TestOneCannotStart:
    @pytest.fixture
    def environ(self) -> dict[str, str]:
        return {"API_PORT": PORT, "API_HOST": "203.0.113.1"}  # nobody's address

    async def test_when_one_ends_by_itself_so_does_the_other(self, rig: Rig) -> None:
        service = await rig.start("-m", "courier")

        await service.communicate()

        assert service.returncode == 1
