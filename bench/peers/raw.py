"""
SQLite by hand: the plainest batched loop, with nothing around it.

What a consumer on SQLite could reach if its own code cost nothing. It keeps what
a dead letter must keep (error, stack, payload, history), but has no leases that
are kept alive, no fencing, no search, no groups, no audit, no tracked replays.
"""

import json
import sqlite3
import time
from pathlib import Path

from workload import ATTEMPTS, BATCH, Measured, Poison, Watch, bodies, boom, must_be, play

REPLAYED = 1000  # letters in one transaction: larger is faster

SCHEMA = """
CREATE TABLE queue (
    id INTEGER PRIMARY KEY, body BLOB NOT NULL, taken INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0, due REAL NOT NULL DEFAULT 0, lease REAL,
    history TEXT NOT NULL DEFAULT '');
CREATE INDEX ready ON queue (due, id) WHERE taken = 0;
CREATE TABLE dead (
    id INTEGER PRIMARY KEY, body BLOB NOT NULL, attempts INTEGER NOT NULL,
    error TEXT NOT NULL, history TEXT NOT NULL, died REAL NOT NULL);
"""
PUT = "INSERT INTO queue (body) VALUES (?)"
TAKE = """
UPDATE queue SET taken = 1, attempts = attempts + 1, lease = ? WHERE id IN (
    SELECT id FROM queue WHERE taken = 0 AND due <= ? ORDER BY due, id LIMIT ?)
RETURNING id, body, attempts, history
"""
DONE = "DELETE FROM queue WHERE id = ?"
AGAIN = "UPDATE queue SET taken = 0, lease = NULL, history = ? WHERE id = ?"
BURY = "INSERT INTO dead VALUES (?, ?, ?, ?, ?, ?)"
RETURN = """
INSERT INTO queue (id, body) SELECT id, body FROM dead ORDER BY id LIMIT ?
RETURNING id
"""
FORGET = "DELETE FROM dead WHERE id BETWEEN ? AND ?"


def enqueue(folder: Path, n: int, setting: str) -> Measured:
    """One by one, each durable before the next."""
    db, ready = _open(folder, setting), bodies(n)
    watch = Watch(n)
    watch.start()
    for one in ready:
        db.execute(PUT, (one,))
    measured = watch.stop()
    must_be(_count(db, "queue"), n, "queued")
    return measured


def enqueue_bulk(folder: Path, n: int, setting: str) -> Measured:
    """A hundred to a transaction."""
    db, ready = _open(folder, setting), bodies(n)
    watch = Watch(n)
    watch.start()
    _fill(db, ready)
    measured = watch.stop()
    must_be(_count(db, "queue"), n, "queued")
    return measured


def happy(folder: Path, n: int, setting: str) -> Measured:
    """Drain what is queued."""
    db = _open(folder, setting)
    _fill(db, bodies(n))
    watch = Watch(n)
    while taken := _take(db):
        for _, raw, _, _ in taken:
            json.loads(raw)
            watch.hit()
        db.execute("BEGIN IMMEDIATE")
        db.executemany(DONE, [(row[0],) for row in taken])
        db.execute("COMMIT")
    return watch.stop()


def poison(folder: Path, n: int, setting: str) -> Measured:
    """Every message fails three times, then is dead."""
    db = _open(folder, setting)
    _fill(db, bodies(n))
    measured = _kill(db, n)
    ((_, _, attempts, _, history, _),) = db.execute("SELECT * FROM dead LIMIT 1")
    must_be((attempts, history.count("booked")), (ATTEMPTS, 2 * ATTEMPTS), "kept")
    must_be(_count(db, "dead"), n, "dead")
    return measured


def replay(folder: Path, n: int, setting: str) -> Measured:
    """Dead letters back to their queue."""
    db = _open(folder, setting)
    _fill(db, bodies(n))
    _kill(db, n)
    watch = Watch(n)
    watch.start()
    while True:
        db.execute("BEGIN IMMEDIATE")
        back = [row[0] for row in db.execute(RETURN, (REPLAYED,))]
        if back:
            db.execute(FORGET, (min(back), max(back)))
        db.execute("COMMIT")
        if not back:
            break
    measured = watch.stop()
    must_be((_count(db, "dead"), _count(db, "queue")), (0, n), "dead and queued")
    return measured


def _open(folder: Path, synchronous: str) -> sqlite3.Connection:
    db = sqlite3.connect(folder / "raw.db", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute(f"PRAGMA synchronous={synchronous}")
    db.execute("PRAGMA cache_size=-16000")
    db.executescript(SCHEMA)
    return db


def _fill(db: sqlite3.Connection, ready: list[bytes]) -> None:
    for start in range(0, len(ready), BATCH):
        db.execute("BEGIN IMMEDIATE")
        db.executemany(PUT, [(one,) for one in ready[start : start + BATCH]])
        db.execute("COMMIT")


def _take(db: sqlite3.Connection) -> list[tuple[int, bytes, int, str]]:
    now = time.time()
    db.execute("BEGIN IMMEDIATE")
    taken = db.execute(TAKE, (now + 60, now, BATCH)).fetchall()
    db.execute("COMMIT")
    return taken


def _kill(db: sqlite3.Connection, n: int) -> Measured:
    watch = Watch(n)
    while taken := _take(db):
        again, dead = [], []
        for id_, raw, attempts, history in taken:
            json.loads(raw)
            watch.hit()
            try:
                boom()
            except Poison as error:
                story = f"{history}{told(error, attempts)}\n"
                if attempts < ATTEMPTS:
                    again.append((story, id_))
                else:
                    died = time.time()
                    dead.append((id_, raw, attempts, str(error), story, died))
        db.execute("BEGIN IMMEDIATE")
        db.executemany(AGAIN, again)
        db.executemany(BURY, dead)
        db.executemany(DONE, [(row[0],) for row in dead])
        db.execute("COMMIT")
    return watch.stop()


def told(error: Poison, attempt: int) -> str:
    """One failed attempt as JSON: what a letter keeps of it."""
    # Frames by name: `traceback` reads source files and takes twenty times as long.
    stack, trace = [], error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f'File "{code.co_filename}", line {trace.tb_lineno}'
        stack.append(f"{place}, in {code.co_qualname}")
        trace = trace.tb_next
    stack.append(f"{type(error).__qualname__}: {error}")
    return json.dumps({"attempt": attempt, "error": str(error), "stack": stack})


def _count(db: sqlite3.Connection, table: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


if __name__ == "__main__":
    play(
        {
            "enqueue": enqueue,
            "enqueue-bulk": enqueue_bulk,
            "happy": happy,
            "poison": poison,
            "replay": replay,
        }
    )
