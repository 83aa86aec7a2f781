"""The endpoint given to the second node's launcher has no port, so it knocks at the default one, where nobody listens.

The first node's launcher hosts the store at a port of its own; the second one joins by torchrun's own c10d rendezvous backend.
Both run in one process, on the loopback interface.
"""

import socket

import torch
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend

STEPS = 5


# region broken
def endpoint_of(host, port):
    """--rdzv-endpoint of the joining node."""
    return host
# endregion


# region fixed
def endpoint_with_port(host, port):
    """--rdzv-endpoint of the joining node: the port that the hosting node listens on, on every node."""
    return f"{host}:{port}"
# endregion


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def parameters(endpoint, **config):
    return RendezvousParameters(backend="c10d", endpoint=endpoint, run_id="job-1", min_nodes=2, max_nodes=2, **config)


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, nodes=2)
    port = free_port()
    host, _ = create_backend(parameters(f"localhost:{port}", is_host="true", read_timeout="3"))
    host.set_state(b"waiting for nodes")
    print(f"node 0: hosting the rendezvous at localhost:{port}", flush=True)
    endpoint = (endpoint_with_port if ctx.fixed else endpoint_of)("localhost", port)
    print(f"node 1: joining at {endpoint}", flush=True)
    joining, _ = create_backend(parameters(endpoint, is_host="false", read_timeout="3"))
    state = joining.get_state()
    ctx.result(joined=True, state=state[0].decode() if state else "")
    weight = torch.zeros(4)
    for step in range(1, STEPS + 1):
        loss = (weight - 1).square().mean()
        weight -= 0.5 * (weight - 1)
        print(f"step={step} loss={loss.item():.4f}")
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results.get("joined"), "the second node did not join"
    assert out.results["state"] == "waiting for nodes", "it joined another rendezvous"
