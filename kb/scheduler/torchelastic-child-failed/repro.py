"""torchelastic ends a job because one worker failed, and its summary does not say why.

Two workers are started by torchelastic (the library function behind torchrun), each an interpreter of its own
that runs this very file. Every worker is meant to read the shard file of its own number, but there is one file
only, so worker 1 raises. The reason stands in what that worker wrote; the launcher's summary has an exit code.
In the fixed half the records of all files are dealt out to the workers. The workers fit a line in plain Python:
torchelastic watches processes, whatever they compute.
"""

import json
import os
import sys
import time
from pathlib import Path

RANKS, STEPS, RECORDS = 2, 20, 64


# region broken
def shard(files, rank, world_size):
    """One file for each rank."""
    return json.loads(files[rank].read_text())
# endregion


# region fixed
def shard_of_records(files, rank, world_size):
    """The records of all files, dealt out to the ranks; the number of files no longer matters."""
    records = [record for file in files for record in json.loads(file.read_text())]
    return records[rank::world_size]
# endregion


def train(fixed, folder):
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    records = (shard_of_records if fixed else shard)(sorted(folder.glob("shard_*.json")), rank, world_size)
    slope = 0.0
    for step in range(1, STEPS + 1):
        loss = sum((slope * x - y) ** 2 for x, y in records) / len(records)
        slope -= 0.3 * sum(2 * (slope * x - y) * x for x, y in records) / len(records)
        time.sleep(0.05)
        if rank == 0:
            print(f"step={step}/{STEPS} loss={loss:.4f}", flush=True)
    (folder / f"result_{rank}.json").write_text(json.dumps({"records": len(records), "loss": loss}))
    if rank == 0:
        print(f"training finished after {STEPS} steps", flush=True)


def run(ctx):
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    ctx.workload(ranks=RANKS, steps=STEPS, records=RECORDS)
    pairs = [(i / RECORDS, 2.0 * i / RECORDS) for i in range(RECORDS)]
    (ctx.tmp / "shard_0.json").write_text(json.dumps(pairs))
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=RANKS, run_id="train", rdzv_backend="c10d",
        rdzv_endpoint="localhost:0", max_restarts=0, monitor_interval=0.1,
    )
    elastic_launch(config, sys.executable)("-u", __file__, "fixed" if ctx.fixed else "broken", str(ctx.tmp))
    results = [json.loads(file.read_text()) for file in sorted(ctx.tmp.glob("result_*.json"))]
    ctx.result(workers=len(results), records=sum(r["records"] for r in results), loss=max(r["loss"] for r in results))


def check(out):
    assert all(r.ok for r in out.ranks), "the launcher failed"
    assert out.results["workers"] == RANKS, "a worker left no result"
    assert out.results["records"] == RECORDS, "records were lost or read twice"
    assert out.results["loss"] < 0.1, "the fit did not get better"


if __name__ == "__main__":
    train(sys.argv[1] == "fixed", Path(sys.argv[2]))
