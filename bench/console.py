"""
The console over a large office, with a worker that files letters beside it.

    python bench/console.py [--letters 1000000] [--only sqlite] [--groups 40] [--json FILE]

For each engine, and for few and many groups: the time of every page and part in a mix of
50 requests a second, ten pages deep against the first, bytes of a first view, what a
browser sees of it, what a hundred viewers cost, and how much they slow filing down.
"""

import argparse
import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import httpx
from msgspec.structs import replace

from console_browser import look
from console_viewers import VIEWERS, watched
from contest import workplace
from deadletter.core.ids import letter_id
from deadletter.core.letter import DeadLetter
from deadletter.wiring.engines import open_engine
from grounds import GROUNDS, Missing
from office_letters import letters
from report import Row, screen, show, write
from server_load import DlqServe

Tell = Callable[[str], None]

ENGINES: Final = ("sqlite", "postgresql")
GROUPS: Final = (40, 24_000)
PACKAGES: Final = ("deadletter", "litestar", "uvicorn", "jinja2", "asyncpg", "playwright")
BATCH: Final = 500
RATE: Final = 50.0  # requests a second
TIMES: Final = 40  # of each page
DEEP: Final = 10
FILED: Final = 20.0  # letters a second, beside everything
SECONDS: Final = 10.0  # of a measurement of filing or watching
LARGE: Final = 10_000_000  # bytes of one body
PAGE_MS, LIST_MS, PART_MS, SUGGEST_MS, LARGE_MS = 200.0, 60.0, 30.0, 40.0, 150.0
_LISTS: Final = ("/groups", "/letters")
_PART: Final = re.compile(r'hx-get="([^"]+[?&](?:amp;)?part=[^"]+)"')
_OLDER: Final = re.compile(r'href="([^"]+)"[^>]*rel="next"')
_ASSET: Final = re.compile(r'(?:href|src)="(/static/[^"#]+)')
_IMPORT: Final = re.compile(r'import\s+(?:[^"\']*from\s+)?"\./([\w.]+)"')
_HTML: Final = {"accept": "text/html", "accept-encoding": "gzip", "sec-fetch-site": "same-origin"}


def large_letter() -> DeadLetter:
    """A letter with a large body."""
    line = b'{"sku": "A-%07d", "note": "leave it with the neighbour"},'
    body = b'{"lines": [' + b"".join(line % n for n in range(LARGE // len(line))) + b"0]}"
    plain = next(letters(1, seed=9))
    return _renamed(replace(plain, message=replace(plain.message, body=body)), "m-large")


async def stock(url: str, n: int, groups: int, told: Tell) -> str:
    """File all letters, and return the id of the one with a large body."""
    engine = await open_engine(url)
    assert engine.letters is not None
    try:
        found, done = letters(n, groups=groups), 0
        while batch := list(islice(found, BATCH)):
            await engine.letters.keep(batch)
            done += len(batch)
            if done % 100_000 == 0:
                told(f"{done:,} letters filed")
        large = large_letter()
        await engine.letters.keep([large])
        return large.head.id
    finally:
        await engine.close()


class Filer:
    """A process that files letters: at a rate, or as fast as it can."""

    def __init__(self, url: str, rate: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--file-into", url, "--rate", str(rate)],
            stdout=subprocess.PIPE,
            text=True,
        )

    def end(self) -> float:
        """Stop it, and return how many letters a second it filed."""
        self._process.terminate()
        said, _ = self._process.communicate(timeout=60)
        counts = [line.split() for line in said.splitlines()]
        if len(counts) < 2:
            raise SystemExit(f"nothing was filed: {said!r} {self._process.returncode}")
        (first, began), (last, ended) = counts[0], counts[-1]
        return (int(last) - int(first)) / (float(ended) - float(began))


async def file_into(url: str, rate: float) -> None:
    """Be the filer: print a count and a time after every batch, until terminated."""
    engine = await open_engine(url)
    assert engine.letters is not None
    found = letters(10_000_000, seed=os.getpid(), groups=40)
    size, done = (2, 0) if rate else (100, 0)
    while True:
        began = time.perf_counter()
        batch = [
            _renamed(one, f"{os.getpid()}-{done}-{n}") for n, one in enumerate(islice(found, size))
        ]
        await engine.letters.keep(batch)
        done += size
        print(done, time.perf_counter(), flush=True)
        if rate:
            await asyncio.sleep(max(0.0, size / rate - (time.perf_counter() - began)))


def _renamed(letter: DeadLetter, name: str) -> DeadLetter:
    """Return the letter of another message."""
    kept, message = letter.head, replace(letter.message, id=name)
    found = letter_id(kept.source, kept.partition, name)
    head = replace(kept, id=found, message_id=name, size=len(message.body))
    return replace(letter, head=head, message=message)


async def addresses(client: httpx.AsyncClient, large: str) -> dict[str, str]:
    """Return the pages and parts to ask for, by name."""
    groups = (await client.get("/api/v1/groups", params={"limit": 3})).json()["groups"]
    heads = (await client.get("/api/v1/letters", params={"limit": 3})).json()["heads"]
    group, letter = groups[0]["fingerprint"], heads[1]["id"]
    pages = {
        "/": "/",
        "/groups": "/groups",
        "/groups/{group}": f"/groups/{group}",
        "/letters": "/letters",
        "/letters?q=is: error:": "/letters?q=is%3Apending%20error%3AKeyError",
        "/letters?q=group:": f"/letters?q=group%3A{group}",
        "/letters?q=body.": "/letters?q=body.order.number%3A%3C100",
        "/letters/{letter}": f"/letters/{letter}",
        "/letters/{letter of 10 MB}": f"/letters/{large}",
        "/letters/{letter}/edit": f"/letters/{letter}/edit",
        **{name: name for name in ("/replays", "/queues", "/audit", "/access", "/system")},
        "/replays/new?q=": f"/replays/new?q=group%3A{group}",
        "/report": "/report?since=8h",
        "suggest": "/search/suggest?q=error%3A&at=6",
        "palette": "/palette?q=ord",
        "badges": "/badges",
    }
    there = {}
    for name, path in pages.items():
        answer = await client.get(path, headers=_HTML)
        if answer.status_code != 200:
            print(f"left out: {name} answers {answer.status_code}")
            continue
        there[name] = path
        for part in sorted({one.replace("&amp;", "&") for one in _PART.findall(answer.text)}):
            shown = re.search(r"part=([\w-]+)", part)
            there[f"{name} part {shown[1] if shown else part}"] = part
    return there


def bar(name: str) -> float:
    """Return the milliseconds that a page or part may take."""
    if name in {"suggest", "palette"}:
        return SUGGEST_MS
    if " part " in name or name == "badges":
        return PART_MS
    if "10 MB" in name:
        return LARGE_MS
    return LIST_MS if name.startswith(_LISTS) and "?" not in name else PAGE_MS


async def mixed(client: httpx.AsyncClient, there: dict[str, str]) -> list[Row]:
    """All pages and parts in turn, 50 a second at most; how long nearly all of each take."""
    took: dict[str, list[float]] = {name: [] for name in there}
    began, number = time.perf_counter(), 0
    for _ in range(TIMES):
        for name, path in there.items():
            number += 1
            await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
            extra = {"hx-request": "true"} if " part " in name else {}
            asked = time.perf_counter()
            answer = await client.get(path, headers={**_HTML, **extra})
            took[name].append((time.perf_counter() - asked) * 1_000)
            if answer.status_code != 200:
                raise SystemExit(f"{path} answered {answer.status_code}: {answer.text[:300]}")
    rate = Row(workload="requests", value=round(number / (time.perf_counter() - began)), unit="/s")
    return [rate] + [
        Row(workload=f"{name}: p95", value=round(_p95(found), 1), unit="ms", target=bar(name))
        for name, found in took.items()
    ]


async def deep(client: httpx.AsyncClient, there: dict[str, str]) -> list[Row]:
    """Ten pages deep against the first."""
    rows = []
    for path in [path for path in _LISTS if path in there]:
        at, further = path, path
        for _ in range(DEEP):
            found = _OLDER.search((await client.get(at, headers=_HTML)).text)
            if found is None:
                break
            at = further = found[1].replace("&amp;", "&")
        first = [await _timed(client, path) for _ in range(20)]
        last = [await _timed(client, further) for _ in range(20)]
        ratio = round(median(last) / median(first), 2)
        what = f"{path}: ten pages deep / first"
        rows.append(Row(workload=what, value=ratio, unit="x", target=1.2))
    return rows


async def sizes(client: httpx.AsyncClient, there: dict[str, str]) -> list[Row]:
    """Bytes over the wire and of HTML."""
    raw = {}
    for name, path in there.items():
        extra = {"hx-request": "true"} if " part " in name else {}
        raw[name] = len((await client.get(path, headers={**_HTML, **extra})).content)
    page = await client.get("/", headers=_HTML)
    warm = int(page.headers["content-length"])
    files: dict[str, int] = {}
    todo = list(dict.fromkeys(_ASSET.findall(page.text)))
    while todo:
        path = todo.pop()
        if path in files:
            continue
        answer = await client.get(path, headers={"accept-encoding": "gzip"})
        files[path] = int(answer.headers["content-length"])
        if path.endswith(".js"):
            todo += [f"{path.rpartition('/')[0]}/{one}" for one in _IMPORT.findall(answer.text)]
    scripts = sum(size for path, size in files.items() if path.endswith(".js"))
    styles = sum(size for path, size in files.items() if path.endswith(".css"))
    largest = max(raw, key=lambda name: raw[name])
    kilobytes = (
        ("first view over the wire, cold", warm + sum(files.values()), 60),
        ("first view over the wire, warm", warm, 15),
        ("scripts, gzipped", scripts, 24),
        ("styles, gzipped", styles, 10),
        (f"HTML of the largest page, {largest}", raw[largest], 300),
        ("HTML of the overview", raw["/"], 80),
    )
    return [
        Row(workload=name, value=round(size / 1_000, 1), unit="kB", target=most)
        for name, size, most in kilobytes
    ]


async def viewing(server: DlqServe, port: int, url: str, told: Tell) -> list[Row]:
    """What a hundred viewers of the overview cost, and how they slow filing down."""
    told("filing alone")
    alone = await filed(url)
    told(f"{VIEWERS} viewers")
    before = server.rss()
    async with watched(port):
        quiet = Filer(url, FILED)
        await asyncio.sleep(2)
        cpu, began = server.cpu_seconds(), time.perf_counter()
        await asyncio.sleep(SECONDS)
        share = (server.cpu_seconds() - cpu) / (time.perf_counter() - began)
        quiet.end()
        each = (server.rss() - before) / VIEWERS
        told(f"filing beside {VIEWERS} viewers")
        beside = await filed(url)
    return [
        Row(
            workload=f"{VIEWERS} viewers: of a core",
            value=round(share * 100, 1),
            unit="%",
            target=15,
        ),
        Row(workload="memory of a viewer", value=round(each, 2), unit="MB", target=1),
        Row(workload="filing alone", value=round(alone), unit="/s"),
        Row(
            workload=f"filing beside {VIEWERS} viewers, of alone",
            value=round(beside / alone, 2),
            unit="x",
        ),
    ]


async def filed(url: str) -> float:
    """Letters a second that one process files."""
    filer = Filer(url, 0)
    await asyncio.sleep(SECONDS / 2 + 1)
    return await asyncio.to_thread(filer.end)


async def reading(base: str, url: str, large: str, told: Tell) -> list[Row]:
    """All that one person sees, with letters filed beside it."""
    filer = Filer(url, FILED)
    try:
        async with httpx.AsyncClient(base_url=base, timeout=60) as client:
            there = await addresses(client, large)
            told(f"{len(there)} pages and parts")
            rows = [
                *await mixed(client, there),
                *await deep(client, there),
                *await sizes(client, there),
            ]
        told("in a browser")
        pages = [path for name, path in there.items() if name.startswith("/") and " " not in name]
        return rows + await look(base, pages)
    finally:
        filer.end()


async def measured(  # noqa: PLR0917 -- what is measured, and where
    engine: str, url: str, folder: Path, n: int, groups: int, told: Tell
) -> list[Row]:
    """Everything on one engine, with so many groups."""
    large = await stock(url, n, groups, told)
    server = DlqServe(folder, url)
    try:
        port = await server.port()
        rows = await reading(f"http://127.0.0.1:{port}", url, large, told)
        rows += await viewing(server, port, url, told)
    finally:
        server.end()
    return [replace(row, engine=engine, who=f"{groups:,} groups", n=n) for row in rows]


@contextmanager
def place(engine: str) -> Iterator[tuple[str, Path]]:
    """An empty office, and a folder."""
    with workplace() as folder:
        if engine == "sqlite":
            yield f"sqlite:///{folder}/office.db", folder
            return
        with GROUNDS[engine].opened() as emptied:
            yield emptied(), folder


async def _timed(client: httpx.AsyncClient, path: str) -> float:
    began = time.perf_counter()
    await client.get(path, headers=_HTML)
    return time.perf_counter() - began


def _p95(found: list[float]) -> float:
    return quantiles(found, n=20)[-1]


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description="The console over a large office.")
    parser.add_argument("--letters", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, action="append")
    parser.add_argument("--only", choices=ENGINES, action="append")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--file-into", help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, default=0.0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.file_into:
        asyncio.run(file_into(asked.file_into, asked.rate))
        return
    os.environ["DLQ_SERVE_SEARCH_SHARE"] = "3600"  # one caller asks for what fifty would
    console, rows = screen(), []
    for engine in asked.only or ENGINES:
        for groups in asked.groups or GROUPS:
            title = f"The console over {asked.letters:,} letters in {groups:,} groups, {engine}"
            with console.status(title) as status:

                def tell(what: str, status=status, title=title) -> None:
                    status.update(f"{title}: {what}")

                try:
                    with place(engine) as (url, folder):
                        found = asyncio.run(
                            measured(engine, url, folder, asked.letters, groups, tell)
                        )
                except Missing as missing:
                    console.print(f"without {engine}: {missing}")
                    continue
            show(console, title, found)
            rows += found
    if asked.json:
        write(asked.json, rows, PACKAGES)


if __name__ == "__main__":
    main()
