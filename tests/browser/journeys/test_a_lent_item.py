"""An item of the queue server: seen leased, found dead, deleted with a reason."""

from typing import Any

import httpx
from playwright.async_api import expect

from browser.conftest import Visit
from browser.journeys.acting import arrive, audit_of, dialog, notice
from browser.places import Place

LIMITS = {"lease_timeout": "1h", "expire_timeout": "24h"}


async def call(api: httpx.AsyncClient, name: str, **asked: Any) -> dict[str, Any]:
    """Make a call of the queue server."""
    answer = await api.post(f"{str(api.base_url).partition('/api/')[0]}/v1/{name}", json=asked)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def lend(desk: Place) -> None:
    """Lend two items of `jobs`; one of them is given up."""
    async with desk.api() as api:
        await call(api, "queues.create", queue_name="jobs-dead", **LIMITS)
        await call(
            api,
            "queues.create",
            queue_name="jobs",
            dead_queue="jobs-dead",
            max_attempts=3,
            **LIMITS,
        )
        items = [{"utf8": '{"job": 1, "password": "hunter2"}'}, {"utf8": '{"job": 2}'}]
        await call(api, "queue.produce", queue_name="jobs", request_timeout="5s", items=items)
        leased = await call(
            api,
            "queue.lease",
            queue_name="jobs",
            client_id="worker-1",
            batch_size=2,
            request_timeout="5s",
        )
        await call(
            api,
            "queue.retry",
            queue_name="jobs",
            partition=leased.get("partition", 0),
            items=[{"id": leased["items"][0]["id"], "dead": True}],
        )


async def test_a_lent_item(desk: Place, visit: Visit) -> None:
    await lend(desk)
    page = await visit(desk.server, "/lent")
    await arrive(page, "2 lent queues")
    await page.get_by_role("link", name="jobs", exact=True).click()  # 1
    await arrive(page, "jobs")
    items = page.get_by_role("main").locator("tbody tr", has_text="leased")
    await expect(items).to_have_count(1)
    await expect(items).to_contain_text("its lease ends")
    await expect(items).to_contain_text('"job": 2')

    await page.goto("/lent")
    await page.get_by_role("link", name="jobs-dead").click()  # 2
    await arrive(page, "jobs-dead")
    await page.get_by_role("main").locator("tbody a.row").first.click()  # 3
    await arrive(page, "Item")
    main = page.get_by_role("main")
    await expect(main).to_contain_text('"job"')
    assert "hunter2" not in await page.content()
    await expect(main.get_by_role("link", name="its queue")).to_be_visible()

    await main.get_by_role("button", name="Delete").click()  # 4
    await dialog(page).get_by_label("Reason").fill("done by hand")
    await dialog(page).get_by_role("button", name="Delete 1 item").click()  # 5
    await expect(notice(page).or_(page.get_by_role("main"))).to_contain_text(["1 item"])
    acts = await audit_of(desk)
    assert any(act["reason"] == "done by hand" for act in acts)
