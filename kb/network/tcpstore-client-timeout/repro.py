"""A rank looks for rank 0's store at the wrong address, and waits until its time-out.

The job's address file holds host and port of rank 0. The port is chosen freely by each job; the file in the
broken half is still that of the job before, since the worker reads it before rank 0 has written the new one.
Nobody listens there. The fixed half waits for a file that names this job.
"""

import datetime
import json
import threading
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

STEPS, WIDTH, CLASSES, TIMEOUT_S = 10, 8, 4, 0.8


# region broken
def address(file, job):
    """Where rank 0's store is, by the file."""
    found = json.loads(file.read_text())
    return found["host"], found["port"]
# endregion


# region fixed
def address_of_job(file, job):
    """Where rank 0's store is, by a file that was written by this job."""
    deadline = time.monotonic() + 5
    while (found := json.loads(file.read_text()))["job"] != job:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{file} is of job {found['job']}, not {job}")
        time.sleep(0.02)
    return found["host"], found["port"]
# endregion


def serve(file, job, stop):
    """Rank 0: makes the store and tells where it is."""
    time.sleep(0.1)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    partial = file.with_suffix(".new")
    partial.write_text(json.dumps({"job": job, "host": "127.0.0.1", "port": store.port}))
    partial.rename(file)
    stop.wait()


def free_port():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return store.port


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, width=WIDTH, timeout_s=TIMEOUT_S)
    file = ctx.tmp / "address.json"
    file.write_text(json.dumps({"job": 4710, "host": "127.0.0.1", "port": free_port()}))
    stop = threading.Event()
    threading.Thread(target=serve, args=(file, 4711, stop), daemon=True).start()
    host, port = (address_of_job if ctx.fixed else address)(file, 4711)
    print(f"connecting to {host}:{port}")
    store = dist.TCPStore(host, port, is_master=False, timeout=datetime.timedelta(seconds=TIMEOUT_S))
    dist.init_process_group("gloo", store=dist.PrefixStore("4711", store), rank=0, world_size=1)
    model = nn.Linear(WIDTH, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    x = torch.randn(32, WIDTH)
    for step in range(1, STEPS + 1):
        loss = F.cross_entropy(model(x), x[:, :CLASSES].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        print(f"step={step} loss={loss.item():.4f}")
    ctx.result(steps=step, loss=loss.item(), port=port)
    dist.destroy_process_group()
    stop.set()
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.ranks[0].ok, f"the run died: {out.ranks[0].exception}"
    assert out.results["steps"] == STEPS and out.results["loss"] < 1.2
