"""What a repro.py reaches for, read from its syntax tree: processes, the network, native code, files outside its folder.

This is an aid for the reviewer, not the barrier: Python can hide any call from a reader of text. The barrier is the
sandbox that runs it. What an entry needs on purpose it declares under `permits`, with the reason, so that the pull
request says what the sandbox has to hold.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

KINDS = {
    "processes": "starts or signals other processes",
    "network": "opens network connections",
    "native_code": "runs native code",
    "files": "reaches for files outside its temporary folder",
    "dynamic_code": "runs code that no reader sees",
}
"""Kind of access → what it means, in the words of the message."""

NEVER = "runner"
"""Never permitted: the machinery that judges the run."""

_MODULES = {
    "subprocess": "processes",
    "pty": "processes",
    "multiprocessing": "processes",
    "torch.multiprocessing": "processes",
    "torch.distributed.launcher": "processes",
    "torch.distributed.elastic.agent": "processes",
    "socket": "network",
    "socketserver": "network",
    "ssl": "network",
    "urllib": "network",
    "http": "network",
    "ftplib": "network",
    "smtplib": "network",
    "xmlrpc": "network",
    "requests": "network",
    "httpx": "network",
    "aiohttp": "network",
    "huggingface_hub": "network",
    "ctypes": "native_code",
    "cffi": "native_code",
    "torch.utils.cpp_extension": "native_code",
    "importlib": "dynamic_code",
    "runpy": "dynamic_code",
    "pickle": "dynamic_code",
    "marshal": "dynamic_code",
    "code": "dynamic_code",
    "webbrowser": "processes",
    "faultbook": NEVER,
    "faultbook_repro": NEVER,
    "faultbook_schema": NEVER,
    "inspect": NEVER,
}
_CALLS = {
    **{f"os.{name}": "processes" for name in ("system", "popen", "fork", "forkpty", "kill", "killpg")},
    **{f"os.{name}": "processes" for name in ("posix_spawn", "posix_spawnp")},
    **{f"os.exec{suffix}": "processes" for suffix in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")},
    **{f"os.spawn{suffix}": "processes" for suffix in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")},
    "signal.pidfd_send_signal": "processes",
    "futures.ProcessPoolExecutor": "processes",
    "asyncio.open_connection": "network",
    "asyncio.start_server": "network",
    "torch.hub": "network",
    "hub.load": "network",
    "ops.load_library": "native_code",
    "classes.load_library": "native_code",
    "Path.home": "files",
    "os.chdir": "files",
    "os.chroot": "files",
    "os.symlink": "files",
    "os.link": "files",
    "path.expanduser": "files",
    "gc.get_objects": NEVER,
    "gc.get_referrers": NEVER,
    "sys._getframe": NEVER,
    "sys.modules": NEVER,
    "sys.settrace": NEVER,
}
_METHODS = {"expanduser": "files", "symlink_to": "files", "hardlink_to": "files"}
_BUILTINS = {"eval": "dynamic_code", "exec": "dynamic_code", "compile": "dynamic_code", "__import__": "dynamic_code"}
_INTERNALS = {"__subclasses__", "__globals__", "__builtins__", "__loader__", "__code__", "_journal"}

# Of the machine's own files those that a run may read or write without harm.
_HARMLESS = ("/dev/null", "/dev/full", "/dev/zero", "/dev/shm", "/proc/self/")
_OPENERS = {
    *("open", "Path", "PurePath", "PosixPath", "listdir", "scandir", "walk", "glob", "stat", "load", "save"),
    *("remove", "unlink", "rmtree", "copy", "copyfile", "copytree", "move", "rename", "replace"),
    *("makedirs", "mkdir", "chmod", "chown"),
}


@lru_cache(maxsize=64)
def accesses(source: str) -> dict[str, list[tuple[int, str]]]:
    """Kind of access → (line, what is used), in the order of the text; empty for a text that is not Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}  # reported as repro-syntax
    nodes = list(ast.walk(tree))
    names = dict(_imported(nodes))
    found: dict[str, list[tuple[int, str]]] = {}
    for line, kind, used in sorted(set(_walk(nodes, names))):
        found.setdefault(kind, []).append((line, used))
    return found


def unused(source: str, permits: Any) -> Iterator[tuple[int, str]]:
    """(index in `permits`, kind) of what is declared and not there: a reviewer would look for it in vain."""
    found = accesses(source)
    for index, permit in enumerate(permits if isinstance(permits, list) else ()):
        kind = permit.get("access") if isinstance(permit, dict) else None
        if kind in KINDS and kind not in found:
            yield index, str(kind)


def problems_of(source: str, permits: Any) -> Iterator[tuple[int, str, str, str]]:
    """(line, message, code, hint): one line for each kind of access that is not declared."""
    declared = {p.get("access") for p in permits if isinstance(p, dict)} if isinstance(permits, list) else set()
    for kind, uses in accesses(source).items():
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(name for _, name in uses[:6]))
        if kind == NEVER:
            hint = "a reproduction has no business with what judges it"
            yield uses[0][0], f"{names} reaches into the machinery of the run", "repro-access", hint
        elif kind not in declared:
            hint = f"do without, or declare it in entry.yaml: permits: [{{access: {kind}, because: …}}]"
            yield uses[0][0], f"{KINDS[kind]}: {names}", "repro-access", hint


def _imported(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, str]]:
    """Local name → dotted name, for `import a.b as c` and `from a import b as c`."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for name in node.names:
                yield (name.asname, name.name) if name.asname else (name.name.split(".")[0], name.name.split(".")[0])
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                yield name.asname or name.name, f"{node.module or ''}.{name.name}"


def _walk(nodes: Sequence[ast.AST], names: dict[str, str]) -> Iterator[tuple[int, str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for name in node.names:
                yield from _module(node.lineno, name.name)
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                yield from _module(node.lineno, f"{node.module or ''}.{name.name}")
                yield from _dotted(node.lineno, f"{node.module or ''}.{name.name}", None)
        elif isinstance(node, ast.Call):
            yield from _call(node, names)
        elif isinstance(node, ast.Attribute):
            if node.attr in _INTERNALS:
                yield node.lineno, NEVER, node.attr
            dotted = _name(node, names)
            # Calls of os.kill are judged with their arguments: most signal the run itself, and the sandbox has no one else.
            yield from (found for found in _dotted(node.lineno, dotted, None) if found[2] != "os.kill")
        elif isinstance(node, ast.Name) and node.id in ("__builtins__", "__loader__"):
            yield node.lineno, NEVER, node.id


def _call(node: ast.Call, names: dict[str, str]) -> Iterator[tuple[int, str, str]]:
    dotted = _name(node.func, names)
    if dotted in _BUILTINS:
        yield node.lineno, _BUILTINS[dotted], dotted
    elif isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
        yield node.lineno, _METHODS[node.func.attr], node.func.attr
    else:
        yield from _dotted(node.lineno, dotted, node)
    if dotted.rpartition(".")[2] in _OPENERS:
        for value in (*node.args, *(k.value for k in node.keywords)):
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and _outside(value.value):
                yield node.lineno, "files", value.value[:80]


def _dotted(line: int, dotted: str, call: ast.Call | None) -> Iterator[tuple[int, str, str]]:
    """By its last two parts, so that `torch.os.system` is known as well."""
    short = ".".join(dotted.split(".")[-2:])
    kind = _CALLS.get(short)
    if kind is None or (short == "os.kill" and call is not None and _itself(call)):
        return
    yield line, kind, short


def _itself(call: ast.Call) -> bool:
    """Whether a signal goes to the run's own process."""
    target = call.args[0] if call.args else None
    return isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute) and target.func.attr == "getpid"


def _module(line: int, dotted: str) -> Iterator[tuple[int, str, str]]:
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        name = ".".join(parts[:count])
        if name in _MODULES:
            yield line, _MODULES[name], name
            return


def _name(node: ast.expr, names: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(names.get(node.id, node.id))
    return ".".join(reversed(parts))


def _outside(path: str) -> bool:
    if path.startswith(_HARMLESS) and ".." not in path:
        return False
    return path.startswith(("/", "~")) or ".." in path.replace("\\", "/").split("/") or path[1:3] == ":\\"
