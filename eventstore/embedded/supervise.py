"""The supervisor: runs postgres as its child, for as long as somebody uses it.

The client starts this file by its path in an isolated interpreter, so it imports the standard
library alone and is up in some ten milliseconds. It ends in one of three ways: the last user is
gone, it was told to stop, or postgres would not start again. While it lives it holds
``supervisor.lock``; while it stops the server for want of users it holds ``users.lock`` as well, so
that a newcomer waits until the stop is complete.

SIGTERM stops the server at once. SIGUSR1 says that the ``keep`` mark has gone.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

FAST_SHUTDOWN = 30.0  # seconds for SIGINT before SIGQUIT
IMMEDIATE_SHUTDOWN = 10.0  # seconds for SIGQUIT before SIGKILL
RESTARTS = 20  # restarts in a row before giving up, about a minute
STEADY = 1.0  # seconds that a server must last for its end not to count as one more in a row
ROTATE_AT = 1 << 20  # bytes of log that a new launch may append to
TRUNCATE_AT = 16 << 20  # bytes of log while the server runs
PR_SET_PDEATHSIG = 1

# Said by a postgres that finds the children of a killed one still alive; they go soon after it.
NOT_YET = ("pre-existing shared memory block", 'lock file "')


def read_pidfile(data: Path) -> list[str]:
    """``postmaster.pid``: pid, data, start, port, socket folder, address, shared memory, state."""
    try:
        return os.fsdecode((data / "postmaster.pid").read_bytes()).split("\n")
    except (FileNotFoundError, NotADirectoryError):
        return []


def postmaster(data: Path) -> int | None:
    """The process id of the live postgres that serves ``data``.

    A pid file outlives a killed server, and its number may be anybody's by now, so the command
    line decides.
    """
    lines = read_pidfile(data)
    if not lines or not lines[0].strip().isdigit():
        return None
    pid = int(lines[0])
    if sys.platform == "linux":
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            return None
        return pid if os.fsencode(data) in arguments else None
    listed = subprocess.run(
        ["ps", "-ww", "-p", str(pid), "-o", "args="],
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return pid if os.fsencode(data) in listed.stdout else None


def stop_orphan(data: Path) -> None:
    """Stop a server whose supervisor was killed, and clear the lock files of one that is gone."""
    patience = (
        (signal.SIGINT, FAST_SHUTDOWN),
        (signal.SIGQUIT, IMMEDIATE_SHUTDOWN),
        (signal.SIGKILL, 5.0),
    )
    for number, seconds in patience:
        pid = postmaster(data)
        if pid is None:
            break
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
        deadline = time.monotonic() + seconds
        while postmaster(data) == pid and time.monotonic() < deadline:
            time.sleep(0.02)
    lines = read_pidfile(data)
    if len(lines) > 4 and postmaster(data) is None:
        # Where the number is another process of ours by now, postgres would take it for a server.
        (data / "postmaster.pid").unlink(missing_ok=True)
        (Path(lines[4]) / f".s.PGSQL.{lines[3]}.lock").unlink(missing_ok=True)


class Supervisor:
    """One postgres and the reasons to start or stop it, handled one event at a time."""

    def __init__(self, home: Path, argv: list[str], uid: int, gid: int, socket: Path) -> None:
        self.home = home
        self.data = home / "data"
        self.log = home / "log" / "postgres.log"
        self.argv = argv
        self.uid = uid
        self.gid = gid
        self.socket = socket
        self.events: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.unkept = threading.Event()
        self.child: subprocess.Popen[bytes] | None = None
        self.log_from = 0
        self.launched = 0.0
        self.was_ready = False
        self.stopping = False
        self.failures = 0
        self.alarm: float | None = None
        self.next_signal = signal.SIGQUIT

    def run(self) -> int:
        """Serve until there is no reason to; the exit code."""
        signal.signal(signal.SIGTERM, lambda *_: self.events.put("stop"))
        signal.signal(signal.SIGUSR1, lambda *_: self.events.put("unkept"))
        threading.Thread(target=self.await_last_user, daemon=True).start()
        stop_orphan(self.data)
        try:
            self.launch()
            code = self.handle_events()
        finally:
            if self.child is not None and self.child.poll() is None:
                self.child.send_signal(signal.SIGINT)
                self.child.wait()
        if self.home not in self.socket.parents:
            self.remove_socket_folder()
        return code

    def await_last_user(self) -> None:
        """Block until nobody holds the users' lock and nothing marks the server as kept."""
        users = os.open(self.home / "users.lock", os.O_RDWR | os.O_CLOEXEC)
        while True:
            fcntl.flock(users, fcntl.LOCK_EX)
            self.unkept.clear()
            if not (self.home / "keep").exists():
                self.events.put("unused")
                return  # with the lock, until this process ends
            fcntl.flock(users, fcntl.LOCK_UN)
            self.unkept.wait()

    def handle_events(self) -> int:
        """The loop; an alarm is a restart that is due, or patience with a stop that has run out."""
        while True:
            wait = 600.0 if self.alarm is None else max(0.0, self.alarm - time.monotonic())
            try:
                event = self.events.get(timeout=wait)
            except queue.Empty:
                event = "housekeeping" if self.alarm is None else "alarm"
            if event == "unkept":
                self.unkept.set()
            elif event in ("unused", "stop") and not self.stopping:
                self.stopping = True
                if self.child is None:
                    return 0
                self.child.send_signal(signal.SIGINT)
                self.alarm = time.monotonic() + FAST_SHUTDOWN
            elif event == "exited":
                self.child = None
                if self.stopping:
                    return 0
                if not self.restart_later():
                    return 1
            elif event == "alarm" and self.stopping and self.child is not None:
                self.child.send_signal(self.next_signal)
                self.next_signal = signal.SIGKILL
                self.alarm = time.monotonic() + IMMEDIATE_SHUTDOWN
            elif event == "alarm":
                self.launch()
            elif event == "housekeeping" and self.log.stat().st_size > TRUNCATE_AT:
                os.truncate(self.log, 0)
                self.log_from = 0
                self.was_ready = True

    def launch(self) -> None:
        """Start postgres from this thread: the kernel ties its life to the thread that made it."""
        self.alarm = None
        self.launched = time.monotonic()
        self.open_log()
        command = launch_command(__file__, self.argv, self.uid, self.gid, signal.SIGINT)
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=self.home)

        def report() -> None:
            child.wait()
            self.events.put("exited")

        self.child = child
        threading.Thread(target=report, daemon=True).start()

    def restart_later(self) -> bool:
        """Decide after an unasked-for exit; what never was ready waits for orphans only."""
        with self.log.open("rb") as log:
            log.seek(self.log_from)
            said = log.read().decode(errors="replace")
        if "ready to accept connections" in said:
            self.was_ready = True
            if time.monotonic() - self.launched > STEADY:
                self.failures = 0
        if not self.was_ready and not any(text in said for text in NOT_YET):
            return False
        self.failures += 1
        if self.failures > RESTARTS:
            say(f"postgres ended {RESTARTS} times in a row and is not started again")
            return False
        say("postgres ended without being asked to; starting it again")
        self.alarm = time.monotonic() + min(0.025 * 2**self.failures, 4.0)
        return True

    def open_log(self) -> None:
        """Send what we and postgres say to the log, and put an old long one aside."""
        if self.log.exists() and self.log.stat().st_size > ROTATE_AT:
            self.log.replace(self.log.with_suffix(".log.1"))
        descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        self.log_from = os.fstat(descriptor).st_size
        os.close(descriptor)

    def remove_socket_folder(self) -> None:
        """Leave nothing in the temporary folder of the machine."""
        try:
            self.socket.rmdir()
        except OSError as error:
            say(f"{self.socket} stays: {error}")


def say(text: str) -> None:
    """One line in the log."""
    os.write(2, f"convstore supervisor [{os.getpid()}] {text}\n".encode())


def launch_command(script: str, argv: list[str], uid: int, gid: int, death_signal: int) -> list[str]:
    """A command that becomes ``argv`` as another user, and is signalled when this thread ends."""
    return [
        *(sys.executable, "-I", "-S", script, "become"),
        *(str(uid), str(gid), str(os.getpid()), str(int(death_signal))),
        *argv,
    ]


def become(uid: int, gid: int, parent: int, death_signal: int, argv: list[str]) -> None:
    """Drop root for good, ask to be told of the parent's death, and turn into ``argv``."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if libc is not None:
        # After setuid, which clears it; the parent may have died before.
        libc.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit("the process that wanted this one is gone")
    os.umask(0o077)
    os.execv(argv[0], argv)  # noqa: S606


def supervise(order: str) -> int:
    """Take the supervisor's lock, detach and serve; the caller goes on once the lock is held."""
    # Until somebody listens; its default would end us.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    spec = json.loads(order)
    home = Path(spec["home"])
    lock = os.open(home / "supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + 5.0
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                say("another supervisor holds the lock")
                return 3
            time.sleep(0.005)
    os.ftruncate(lock, 0)
    pid = os.fork()
    if pid:
        os.pwrite(lock, str(pid).encode(), 0)
        os._exit(0)
    return Supervisor(home, spec["argv"], spec["uid"], spec["gid"], Path(spec["socket"])).run()


if __name__ == "__main__":
    if sys.argv[1] == "supervise":
        sys.exit(supervise(sys.argv[2]))
    user, group, wanted_by, at_its_death = map(int, sys.argv[2:6])
    become(user, group, wanted_by, at_its_death, sys.argv[6:])
