"""Draining the failed jobs of another system: looked at first, then taken, and sent back."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.async_api import expect
from redis import Redis

from browser.conftest import Visit
from browser.journeys.acting import LONG, arrive, dialog, notice
from browser.places import Place
from intake.rig import raw, recorded
from servers import Server

pytestmark = [pytest.mark.engines, pytest.mark.xdist_group("redis_server")]

SETTINGS = """\
[sources.shop]
url = "{url}"

[[intake]]
name = "mail-dead"
server = "shop"
place = "bullmq:mail"
"""


@pytest.fixture
def failed_jobs(redis_server: Server) -> Iterator[Any]:
    """Two failed jobs of BullMQ, as its own worker left them."""
    client: Any = Redis.from_url(redis_server.url)
    client.flushdb()
    for one in recorded("bullmq")["keys"]:
        if one["type"] == "hash":
            fields = {raw(f): raw(v) for f, v in one["value"]}
            client.hset(one["key"], mapping=fields)
        elif one["type"] == "zset":
            client.zadd(one["key"], {raw(m): score for m, score in one["value"]})
    yield client
    client.flushdb()
    client.close()


async def test_drain_a_foreign_queue(
    place: Place, visit: Visit, failed_jobs: Any, redis_server: Server
) -> None:
    (place.folder / "deadletter.toml").write_text(SETTINGS.format(url=redis_server.url))
    server = place.serve()
    page = await visit(server, "/intake")
    await expect(page.get_by_role("main")).to_contain_text("mail-dead")

    await page.get_by_role("button", name="Look").click()  # 1
    await expect(dialog(page)).to_contain_text("smtp timeout")
    await expect(dialog(page)).to_contain_text("bullmq")
    assert failed_jobs.zcard("bull:mail:failed") == 2
    await page.keyboard.press("Escape")

    await page.get_by_role("button", name="Take").click()  # 2
    await dialog(page).get_by_role("radio", name="all").check()
    await dialog(page).get_by_role("button", name="Take them in").click()  # 3
    await expect(notice(page)).not_to_be_empty()
    await place.died(2)
    assert failed_jobs.zcard("bull:mail:failed") == 0

    await page.goto("/groups")
    await page.get_by_role("main").locator("tbody a.row").first.click()  # 4
    await page.get_by_role("main").get_by_role("link", name="Plan replay").first.click()  # 5
    await arrive(page, "Plan a replay")
    await page.get_by_label("Reason").fill("the server of mails is back")
    await page.get_by_role("button", name="Choose these letters").click()  # 6
    await expect(page.locator("#preview")).to_contain_text("Send", timeout=LONG)
    await expect(page.get_by_role("main")).to_contain_text("consumers report nothing")
