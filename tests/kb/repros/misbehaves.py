"""One way to misbehave per variant."""

import os
import signal
import socket
import subprocess
import sys
import time

VARIANTS = (
    "raises",
    "exits",
    "hangs",
    "aborts",
    "segfaults",
    "writes-too-much",
    "infinite-output",
    "network",
    "forks",
    "escapes",
    "kills-all",
    "writes-outside",
    "environment",
    "stops",
    "memory",
    "fork-bomb",
)


def run(ctx):
    ctx.workload(steps=1)
    ctx.result(before=1)
    globals()[ctx.variant.replace("-", "_")](ctx)


def raises(ctx):
    raise ValueError("on purpose")


def exits(ctx):
    sys.exit(3)


def hangs(ctx):
    while True:
        time.sleep(60)


def aborts(ctx):
    os.abort()


def segfaults(ctx):
    import ctypes

    ctypes.string_at(0)


def writes_too_much(ctx):
    with open(ctx.tmp / "big", "wb") as file:
        for _ in range(1024):
            file.write(bytes(1 << 20))


def infinite_output(ctx):
    while True:
        print("x" * 1000)


def network(ctx):
    try:
        socket.create_connection(("192.0.2.1", 80), timeout=2)
    except OSError as error:
        ctx.result(refused=str(error))
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    socket.create_connection(server.getsockname(), timeout=2).close()
    ctx.result(loopback=True, interfaces=[name for _, name in socket.if_nameindex()])


def forks(ctx):
    for _ in range(3):
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)


def escapes(ctx):
    """A daemon: its own session, its own group, not the runner's child any more."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                with open(ctx.tmp.parent.parent / "alive", "w") as file:
                    file.write("x")
                time.sleep(0.01)
        os._exit(0)
    time.sleep(0.1)


def kills_all(ctx):
    os.kill(-1, signal.SIGKILL)


def writes_outside(ctx):
    for path in (
        "/tmp/faultbook-was-here",
        os.path.expanduser("~root/faultbook-was-here"),
        "/faultbook-was-here",
    ):
        try:
            with open(path, "w") as file:
                file.write("x")
            os.unlink(path)
            ctx.result(written=path)
        except OSError as error:
            ctx.result(refused=str(error))


def environment(ctx):
    ctx.result(
        environment=dict(os.environ),
        visible=subprocess.run(
            ["cat", f"/proc/{os.getppid()}/environ"], capture_output=True, text=True
        ).stdout,
    )


def stops(ctx):
    os.kill(os.getpid(), signal.SIGSTOP)


def memory(ctx):
    keep = []
    while True:
        keep.append(bytearray(1 << 28))


def fork_bomb(ctx):
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.01)


def check(out):
    raise AssertionError("never healthy")
