"""What a repro.py reaches for is said by the line that does it, unless the entry declares it."""

from __future__ import annotations

import pytest

from faultbook_schema.access import accesses, problems_of

REACHES = {
    "import subprocess": "processes",
    "from os import system": "processes",
    "import os\nos.fork()": "processes",
    "import os\nos.kill(int(x), 9)": "processes",
    "import torch\ntorch.os.system('id')": "processes",
    "import torch.multiprocessing as mp": "processes",
    "from concurrent import futures\nfutures.ProcessPoolExecutor()": "processes",
    "import socket": "network",
    "from urllib.request import urlopen": "network",
    "import torch\ntorch.hub.load('a/b', 'c')": "network",
    "import ctypes": "native_code",
    "from torch.utils import cpp_extension": "native_code",
    "eval(text)": "dynamic_code",
    "__import__('os')": "dynamic_code",
    "import importlib": "dynamic_code",
    "import pickle": "dynamic_code",
    "open('/etc/passwd')": "files",
    "open('../../other/entry.yaml')": "files",
    "open('/proc/self/../1/environ')": "files",
    "from pathlib import Path\nPath('~/.ssh').expanduser()": "files",
    "from pathlib import Path\nPath.home()": "files",
    "import os\nos.symlink(a, b)": "files",
    "import torch\ntorch.load('/srv/model.pt')": "files",
    "import faultbook_repro": "runner",
    "ctx._journal.write(end={'ok': True})": "runner",
    "().__class__.__base__.__subclasses__()": "runner",
    "import sys\nsys.modules['torch']": "runner",
}


@pytest.mark.parametrize("source", REACHES)
def test_each_way_out_is_seen(source: str) -> None:
    assert set(accesses(source)) == {REACHES[source]}


HARMLESS = [
    "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "open('/proc/self/statm')\nopen('/dev/full', 'wb')",
    "import torch\ntorch.load(ctx.tmp / 'model.pt')",
    "model.eval()\nre.compile('x')\ntorch.compile(model)",
    "from torch.utils.data import DataLoader\nDataLoader(data, num_workers=2)",
    "import os\nos.environ['RANK']",
    "print('/etc/passwd is only a text')",
]


@pytest.mark.parametrize("source", HARMLESS)
def test_ordinary_code_is_left_alone(source: str) -> None:
    assert accesses(source) == {}


def test_what_is_declared_is_not_reported_and_the_runner_cannot_be_declared() -> None:
    source = "import subprocess\nimport socket\nimport faultbook_repro\n"
    told = list(problems_of(source, [{"access": "processes", "because": "x"}, {"access": "runner", "because": "x"}]))
    assert [(line, message) for line, message, _, _ in told] == [
        (2, "opens network connections: `socket`"),
        (3, "`faultbook_repro` reaches into the machinery of the run"),
    ]
    assert "permits: [{access: network, because: …}]" in told[0][3]


@pytest.mark.parametrize("source", ["def (", "\x00", "(" * 5000, "x = " + "-" * 20_000 + "1"])
def test_what_is_no_python_is_not_read(source: str) -> None:
    assert accesses(source) == {}
