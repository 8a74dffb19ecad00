"""A failing test of a letter as a download: masked for readers, revealed on the record."""

from io import BytesIO
from zipfile import ZipFile

import httpx
import pytest
from litestar import Litestar

from deadletter.client import Client
from deadletter.core.access import Role
from deadletter.core.letter import By, Changes
from deadletter.server.app import build
from deadletter.server.context import ServerContext
from deadletter.settings import Settings
from office.making import make_letter
from server.api.conftest import Api, Caller


def files_in(answer: httpx.Response) -> dict[str, str]:
    assert answer.status_code == 200, answer.text
    with ZipFile(BytesIO(answer.content)) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


async def test_a_letter_is_downloaded_as_a_test_with_its_message(
    api: Api, context: ServerContext
) -> None:
    await context.store.keep([letter := make_letter(body=b'{"order": 7, "password": "hunter2"}')])

    answer = await api.get(f"/api/v1/letters/{letter.id}/repro", params={"app": "shop:app"})

    short = letter.id[:10]
    assert answer.headers["content-type"] == "application/zip"
    assert f'filename="test_letter_{short}.zip"' in answer.headers["content-disposition"]
    files = files_in(answer)
    assert set(files) == {f"letter_{short}.json", f"test_letter_{short}.py"}
    assert "from shop import app" in files[f"test_letter_{short}.py"]
    assert "hunter2" not in "".join(files.values())
    assert await context.store.audit(target=letter.id) == []


async def test_secrets_are_revealed_to_operators_and_that_is_recorded(
    guarded: ServerContext, guarded_api: Api, caller: Caller
) -> None:
    await guarded.store.keep([letter := make_letter(body=b'{"password": "hunter2"}')])
    path = f"/api/v1/letters/{letter.id}/repro/revealed"

    refused = await guarded_api.get(
        path, params={"app": "shop:app"}, headers=await caller(Role.READER)
    )
    answer = await guarded_api.get(
        path, params={"app": "shop:app"}, headers=await caller(Role.OPERATOR, name="anna")
    )

    assert refused.status_code == 403
    assert "hunter2" in "".join(files_in(answer).values())
    (entry,) = await guarded.store.audit(target=letter.id)
    assert (entry.action, entry.actor) == ("reveal", "anna")


async def test_the_original_of_an_edited_letter_can_be_asked_for(
    api: Api, context: ServerContext
) -> None:
    await context.store.keep([letter := make_letter(body=b"old text")])
    await context.office.letters.edit(letter.id, Changes(body=b"new text"), By("anna"))
    path = f"/api/v1/letters/{letter.id}/repro"

    edited = files_in(await api.get(path, params={"app": "shop:app"}))
    original = files_in(await api.get(path, params={"app": "shop:app", "original": "true"}))

    assert "new text" in "".join(edited.values())
    assert "old text" in "".join(original.values())


async def test_letters_of_other_mailboxes_are_missing(
    guarded: ServerContext, guarded_api: Api, caller: Caller
) -> None:
    await guarded.store.keep([letter := make_letter()])

    answer = await guarded_api.get(
        f"/api/v1/letters/{letter.id}/repro",
        params={"app": "shop:app"},
        headers=await caller(Role.READER, "mails"),
    )

    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("app", "said"),
    [(None, "?app=shop:app"), ("shop", "module:name"), ("shop:app; import os", "module:name")],
)
async def test_a_test_needs_an_application(
    api: Api, context: ServerContext, app: str | None, said: str
) -> None:
    await context.store.keep([letter := make_letter()])

    answer = await api.get(
        f"/api/v1/letters/{letter.id}/repro", params={} if app is None else {"app": app}
    )

    assert answer.status_code == 400
    assert said in answer.json()["detail"]


class TestWithAnApp:
    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(app="shop.main:app")

    async def test_the_app_of_the_settings_is_the_default(
        self, api: Api, context: ServerContext
    ) -> None:
        await context.store.keep([letter := make_letter()])

        files = files_in(await api.get(f"/api/v1/letters/{letter.id}/repro"))

        assert any("from shop.main import app" in text for text in files.values())


async def test_the_client_unpacks_the_files(app: Litestar, context: ServerContext) -> None:
    await context.store.keep([letter := make_letter(body=b'{"password": "hunter2"}')])
    transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]

    async with Client("http://127.0.0.1", transport=transport) as client:
        masked = await client.letters.repro(letter.id[:8], "shop:app")
        revealed = await client.letters.repro(letter.id[:8], "shop:app", reveal=True)

    assert set(masked) == set(revealed)
    assert "hunter2" not in "".join(masked.values())
    assert "hunter2" in "".join(revealed.values())


@pytest.fixture
def app(context: ServerContext) -> Litestar:
    return build(context)
