"""SIGKILL of the server, of a backend, of a client, in the middle of appends: what was acknowledged is there."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

import psycopg
import pytest
from clients import wait_until

import eventstore
from eventstore import AsyncEventStore, EventStore, embedded

WRITERS = ("alice", "bob", "carol")
PROGRAM = Path(__file__).parent / "writer.py"
REPOSITORY = Path(eventstore.__file__).parent.parent


class Writer:
    """A writer's process, and what it noted."""

    def __init__(self, url: str, name: str, notes: Path) -> None:
        self.name = name
        self._notes = notes
        paths = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), url, name, str(notes)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": paths},
        )

    def acknowledged(self) -> list[dict[str, Any]]:
        """What it was told is written."""
        text = self._notes.read_text() if self._notes.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def goes_on(self, appends: int = 20) -> None:
        """Wait until it has done more."""
        wanted = len(self.acknowledged()) + appends
        wait_until(lambda: len(self.acknowledged()) >= wanted or self.process.poll() is not None, "it appends", 60)
        assert self.process.poll() is None, self.error()

    def stop(self) -> None:
        """Let it end after the append that it is at."""
        _, said = self.process.communicate(b"stop\n", timeout=60)
        assert self.process.returncode == 0, said.decode()

    def kill(self) -> None:
        """End it where it is."""
        self.process.kill()
        self.process.communicate()

    def error(self) -> str:
        return self.process.communicate()[1].decode()


@pytest.fixture
def durable(server: embedded.Server) -> Iterator[embedded.Server]:
    """A server that syncs, with a migrated store; the run's other server has chosen the binaries."""
    home = Path(tempfile.mkdtemp(prefix="cs-kill-", dir="/tmp"))
    home.chmod(0o755)
    with embedded.start(home, durable=True) as running:
        with EventStore.open(running.url) as store:
            store.migrate()
        yield running
    embedded.down(home, force=True)
    shutil.rmtree(home)


@pytest.fixture
def writers(durable: embedded.Server, tmp_path: Path) -> Iterator[list[Writer]]:
    """Processes that are at it."""
    with ExitStack() as stack:
        made = [Writer(durable.url, name, tmp_path / name) for name in WRITERS]
        for writer in made:
            stack.callback(writer.kill)
        for writer in made:
            writer.goes_on()
        yield made


def answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def check(url: str, writers: list[Writer]) -> None:
    """Compare the log with what was acknowledged; whatever else it holds is whole."""
    with EventStore.open(url) as store:
        assert store.verify().ok
        for stream in (*WRITERS, "shared"):
            events = list(store.conversation(stream).events())
            assert [event.version for event in events] == list(range(1, len(events) + 1))
            data = [event.data for event in events]
            told = [line for writer in writers for line in writer.acknowledged() if line["stream"] == stream]
            for line in told:
                assert data[line["first"] - 1 : line["last"]] == line["items"]
            appends = [list(group) for _, group in groupby(data, key=lambda item: item[:2])]
            for append in appends:
                name, n, _, size = append[0]
                assert append == [[name, n, part, size] for part in range(size)]
            for writer in writers:
                numbers = [append[0][1] for append in appends if append[0][0] == writer.name]
                assert numbers == sorted(set(numbers)), "an append stands twice, or out of order"
                noted = {line["items"][0][1] for line in told if line["items"][0][0] == writer.name}
                assert len(set(numbers) - noted) <= 1, "more than the append that it was at when it ended"


def kill_postmaster(server: embedded.Server) -> None:
    killed = server.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: server.pid not in (None, killed) and answers(server.url), "the server is back", 60)


def ended(conn: psycopg.Connection) -> bool:
    try:
        conn.execute("SELECT 1")
    except psycopg.OperationalError:
        return True
    return False


def kill_a_backend(server: embedded.Server) -> None:
    query = (
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'convstore' AND state = 'active'"
        " AND pid <> pg_backend_pid() LIMIT 1"
    )
    found: list[int] = []
    with psycopg.connect(server.url, autocommit=True) as conn:

        def one_at_work() -> bool:
            found.extend(pid for (pid,) in conn.execute(query).fetchall())
            return bool(found)

        wait_until(one_at_work, "a backend is at work")
        os.kill(found[0], signal.SIGKILL)
        wait_until(lambda: ended(conn), "the server ends all its backends")
    wait_until(lambda: answers(server.url), "the server is back", 60)


@pytest.mark.parametrize("kill", [kill_postmaster, kill_a_backend])
def test_a_killed_server_has_what_it_acknowledged_and_its_clients_go_on(
    durable: embedded.Server, writers: list[Writer], kill: Callable[[embedded.Server], None]
) -> None:
    for _ in range(3):
        kill(durable)
        for writer in writers:
            writer.goes_on()
    for writer in writers:
        writer.stop()
    check(durable.url, writers)
    for writer in writers:  # a stopped writer knows of each of its appends
        with EventStore.open(durable.url) as store:
            events = store.conversation(writer.name).events()
            noted = [line["items"] for line in writer.acknowledged() if line["stream"] == writer.name]
            assert [event.data for event in events] == [item for items in noted for item in items]


def test_what_killed_clients_were_at_is_whole_or_absent(
    durable: embedded.Server, writers: list[Writer], tmp_path: Path
) -> None:
    for writer in writers:
        writer.kill()
    check(durable.url, writers)
    again = Writer(durable.url, "dave", tmp_path / "dave")
    again.goes_on()
    again.stop()
    with EventStore.open(durable.url) as store:
        assert store.verify().ok


def test_clients_and_server_killed_at_once_leave_what_was_acknowledged(
    durable: embedded.Server, writers: list[Writer]
) -> None:
    for writer in writers:
        writer.process.kill()
    kill_postmaster(durable)
    for writer in writers:
        writer.kill()
    check(durable.url, writers)


def test_a_killed_server_has_each_fork_that_it_acknowledged_once(durable: embedded.Server) -> None:
    """A line of branches, one off the other: each call that the kill cut off was made again and is there once."""
    made: list[int] = [0]
    stop = threading.Event()
    with EventStore.open(durable.url) as store:
        store.conversation("b0").append([0])

        def forks() -> None:
            while not stop.is_set():
                n = made[-1] + 1
                branch = store.conversation(f"b{n - 1}").fork(f"b{n}", key="fork")
                branch.append([n], key="item")
                made.append(n)

        with ThreadPoolExecutor(1) as threads:
            going = threads.submit(forks)
            try:
                for _ in range(3):
                    wanted = made[-1] + 20
                    wait_until(lambda wanted=wanted: made[-1] >= wanted or going.done(), "it forks", 60)  # type: ignore[misc]
                    kill_postmaster(durable)
            finally:
                stop.set()
            going.result(60)
        n = made[-1]
        assert [e.stream for e in store.conversation(f"b{n}").events()] == [
            "b0",
            *(f"b{v // 2 + 1}" for v in range(2 * n)),
        ]
        report = store.verify()
        assert (report.ok, report.checked, report.streams) == (True, 2 * n + 1, n + 1)


def test_sets_of_appends_whose_server_is_killed_are_there_once_and_in_order(durable: embedded.Server) -> None:
    async def play() -> list[list[int]]:
        told: list[list[int]] = [[] for _ in range(16)]
        killing = True
        async with AsyncEventStore.open(durable.url) as store:

            async def append(stream: int) -> None:
                n = 0
                while killing:
                    n += 1
                    result = await store.conversation(f"s{stream}").append([n])
                    assert result.last_version == n
                    told[stream].append(n)

            tasks = [asyncio.create_task(append(stream)) for stream in range(16)]
            for _ in range(2):
                wanted = min(map(len, told)) + 20
                while min(map(len, told)) < wanted and not any(task.done() for task in tasks):
                    await asyncio.sleep(0.005)
                await asyncio.to_thread(kill_postmaster, durable)
            killing = False
            await asyncio.gather(*tasks)
            together = store.telemetry.registry.get_sample_value("convstore_append_set_appends_sum")
            assert together is not None
            assert together > 100
        return told

    told = asyncio.run(play())
    with EventStore.open(durable.url) as store:
        for stream, numbers in enumerate(told):
            assert [event.data for event in store.conversation(f"s{stream}").events()] == numbers
        assert store.verify().ok
