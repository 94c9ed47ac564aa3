"""The embedded server under SIGKILL: nothing is left behind, and nothing committed is lost."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

import eventstore
from eventstore.embedded import Server, down, start, status, up

REPOSITORY = Path(eventstore.__file__).parent.parent
PYTHONPATH = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])

CLIENT = """
import json, sys
from pathlib import Path
import psycopg
from eventstore.embedded import start
server = start(Path(sys.argv[1]), durable=False)
with psycopg.connect(server.url) as connection:
    identity, = connection.execute("SELECT system_identifier FROM pg_control_system()").fetchone()
print(json.dumps({"pid": server.pid, "identity": identity}), flush=True)
sys.stdin.read()
"""


def client(home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": PYTHONPATH},
        text=True,
    )


def told(process: subprocess.Popen[str]) -> dict[str, int]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the client failed to start the server"
    return dict(json.loads(line))


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def wait_until(true: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def processes(home: Path, word: str = "") -> list[psutil.Process]:
    """Every process whose command line names this home, and the word."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = "\0".join(process.info["cmdline"] or ())
        if str(home) in line and word in line:
            found.append(process)
    return found


def gone(home: Path) -> bool:
    return not processes(home)


def supervisor_pid(home: Path) -> int:
    return int((home / "supervisor.lock").read_text())


def marks(url: str) -> list[int]:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("SELECT n FROM mark ORDER BY n").fetchall()]


def commit_mark(url: str, n: int) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS mark (n int)")
        connection.execute("INSERT INTO mark VALUES (%s)", [n])


def answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def restarted(server: Server, earlier: int) -> None:
    wait_until(lambda: server.pid not in (None, earlier), "it is started again")
    wait_until(lambda: answers(server.url), "it is ready again")


@pytest.fixture
def home() -> Iterator[Path]:
    """A home that the server's user can reach; pytest's own folder is closed to it under root."""
    folder = Path(tempfile.mkdtemp(prefix="cs-kill-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder / "home"
    down(folder / "home", force=True)
    wait_until(lambda: gone(folder), "the server stops")
    shutil.rmtree(folder)


def test_six_at_once_on_an_empty_home_make_one_cluster(home: Path) -> None:
    clients = [client(home) for _ in range(6)]
    facts = [told(process) for process in clients]
    assert len({fact["identity"] for fact in facts}) == 1
    assert len({fact["pid"] for fact in facts}) == 1
    assert len(processes(home, "supervise.py\0supervise")) == 1
    assert (home / "log" / "postgres.log").read_text().count("starting PostgreSQL") == 1
    for process in clients:
        kill(process)
    wait_until(lambda: gone(home), "the server stops with its last user")


def test_a_killed_client_leaves_no_server(home: Path) -> None:
    process = client(home)
    pid = told(process)["pid"]
    assert psutil.pid_exists(pid)
    kill(process)
    wait_until(lambda: gone(home), "postgres and its supervisor end", 10)
    assert not psutil.pid_exists(pid)
    assert "database system is shut down" in (home / "log" / "postgres.log").read_text()


def test_a_client_killed_at_any_moment_of_its_start_does_no_harm(home: Path) -> None:
    moments: list[Callable[[], bool]] = [
        lambda: any(home.glob("data.tmp-*")),
        lambda: any(home.glob("data.tmp-*/global/pg_control")),
        lambda: (home / "data").exists(),
        lambda: bool(processes(home, "supervise.py\0supervise")),
        lambda: (home / "data" / "postmaster.pid").exists(),
    ]
    for reached in moments:
        process = client(home)
        wait_until(reached, "the moment to kill")
        kill(process)
        wait_until(lambda: gone(home), "all that the client started ends")
    with start(home, durable=False) as server:
        assert answers(server.url)
    assert list(home.glob("*.tmp-*")) == []


def test_a_killed_initdb_leaves_no_half_cluster(home: Path) -> None:
    process = client(home)
    wait_until(lambda: any(home.glob("data.tmp-*/PG_VERSION")), "initdb is at work")
    kill(process)
    wait_until(lambda: not processes(home, "data.tmp-"), "initdb ends with its client")
    assert not (home / "data").exists()
    with start(home, durable=False) as server:
        assert answers(server.url)
    assert list(home.glob("*.tmp-*")) == []


def test_a_killed_postgres_comes_back_with_what_was_committed(home: Path) -> None:
    with start(home) as server:
        for n in range(3):
            commit_mark(server.url, n)
            killed = server.pid
            assert killed is not None
            os.kill(killed, signal.SIGKILL)
            restarted(server, killed)
            assert marks(server.url) == list(range(n + 1))
    wait_until(lambda: gone(home), "the server stops with its last user")


def test_a_killed_backend_does_not_take_the_server_along(home: Path) -> None:
    with start(home) as server, psycopg.connect(server.url) as victim:
        commit_mark(server.url, 1)
        os.kill(victim.info.backend_pid, signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            victim.execute("SELECT 1")
        wait_until(lambda: answers(server.url), "it is ready again")
        assert marks(server.url) == [1]


def test_a_server_stopped_from_outside_comes_back(home: Path) -> None:
    with start(home, durable=False) as server:
        commit_mark(server.url, 1)
        first = server.pid
        assert first is not None
        os.kill(first, signal.SIGINT)
        restarted(server, first)
        assert marks(server.url) == [1]


def test_a_killed_supervisor_takes_postgres_along_and_a_new_start_recovers(home: Path) -> None:
    with start(home) as server:
        commit_mark(server.url, 1)
        first = server.pid
        os.kill(supervisor_pid(home), signal.SIGKILL)
        if sys.platform == "linux":
            wait_until(lambda: server.pid is None, "postgres ends with its supervisor")
        with start(home) as again:
            assert again.pid not in (None, first)
            assert marks(again.url) == [1]
            assert again.url == server.url
    wait_until(lambda: gone(home), "the server stops with its last user")


def test_a_start_right_after_the_supervisors_death_recovers(home: Path) -> None:
    with start(home) as server:
        for n in range(3):
            commit_mark(server.url, n)
            os.kill(supervisor_pid(home), signal.SIGKILL)
            with start(home) as again:
                assert marks(again.url) == list(range(n + 1))
                wait_until(lambda: answers(server.url), "the first user's URL works again")


def test_killed_supervisor_and_postgres_at_once(home: Path) -> None:
    with start(home) as server:
        commit_mark(server.url, 1)
        assert server.pid is not None
        supervisor = supervisor_pid(home)
        os.kill(server.pid, signal.SIGKILL)
        os.kill(supervisor, signal.SIGKILL)
        with start(home) as again:
            assert marks(again.url) == [1]


def test_a_postgres_without_supervisor_gives_way(home: Path) -> None:
    with start(home) as server:
        commit_mark(server.url, 1)
        command = psutil.Process(server.pid).cmdline()
    wait_until(lambda: gone(home), "the server stops")
    owner = (home / "data").stat().st_uid
    orphan = subprocess.Popen(command, user=owner if os.geteuid() == 0 else None, cwd=home, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: status(home).running, "it is ready")
        commit_mark(server.url, 2)
        with start(home) as again:
            assert orphan.wait(timeout=30) == 0
            assert again.pid != orphan.pid
            assert marks(again.url) == [1, 2]
    finally:
        orphan.kill()
        orphan.wait()


def test_a_busy_backend_of_a_killed_postgres_is_waited_for(home: Path) -> None:
    with start(home) as server:
        commit_mark(server.url, 1)
        killed = server.pid
        assert killed is not None
        backend = psutil.Process(killed).children()[0]
        backend.suspend()  # so that it can't notice the death, and holds the shared memory
        os.kill(killed, signal.SIGKILL)
        log = home / "log" / "postgres.log"
        wait_until(lambda: "pre-existing shared memory block" in log.read_text(), "a start is refused")
        backend.kill()
        restarted(server, killed)
        assert marks(server.url) == [1]


def test_a_new_supervisor_waits_for_a_busy_backend_too(home: Path) -> None:
    with start(home) as server:
        commit_mark(server.url, 1)
        killed, supervisor = server.pid, supervisor_pid(home)
        assert killed is not None
        backend = psutil.Process(killed).children()[0]
        backend.suspend()
        os.kill(supervisor, signal.SIGSTOP)
        os.kill(killed, signal.SIGKILL)
        os.kill(supervisor, signal.SIGKILL)
        process = client(home)
        log = home / "log" / "postgres.log"
        wait_until(lambda: "pre-existing shared memory block" in log.read_text(), "a start is refused")
        backend.kill()
        told(process)
        assert marks(server.url) == [1]
        kill(process)


def test_a_kept_server_outlives_killed_clients_and_a_killed_postgres(home: Path) -> None:
    kept = up(home, durable=False)
    assert kept.url is not None
    assert kept.pid is not None
    process = client(home)
    assert told(process)["pid"] == kept.pid
    kill(process)
    wait_until(lambda: not status(home).users, "the client is gone")
    os.kill(kept.pid, signal.SIGKILL)
    wait_until(lambda: status(home).pid not in (None, kept.pid), "it is started again")
    wait_until(lambda: status(home).running, "it is ready again")
    assert not down(home).running
    wait_until(lambda: gone(home), "the supervisor ends")


def test_a_stale_pid_file_whose_number_is_anothers_is_no_obstacle(home: Path) -> None:
    with start(home) as server:
        commit_mark(server.url, 1)
        assert server.pid is not None
        supervisor = supervisor_pid(home)
        os.kill(supervisor, signal.SIGSTOP)  # so that nothing clears up after postgres
        killed = server.pid
        os.kill(killed, signal.SIGKILL)
        os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: gone(home), "all are dead")
    account = (home / "data").stat().st_uid
    bystander = subprocess.Popen(["sleep", "60"], user=account if os.geteuid() == 0 else None)
    pid_file = home / "data" / "postmaster.pid"
    try:
        lines = pid_file.read_text().split("\n")
        lines[0] = str(bystander.pid)
        pid_file.write_text("\n".join(lines))
        (home / "socket" / ".s.PGSQL.5432.lock").write_text("\n".join(lines))
        assert status(home).pid is None
        with start(home) as again:
            assert marks(again.url) == [1]
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_forked_child_holds_the_server_up(home: Path) -> None:
    server = start(home, durable=False)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(writer)
            os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    server.close()
    assert status(home).users
    assert answers(server.url)
    os.close(writer)
    os.waitpid(child, 0)
    wait_until(lambda: gone(home), "the server stops with its last user")
