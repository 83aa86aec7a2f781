"""An extension built for another torch does not load.

A C++ extension module is compiled with g++ against the headers of the installed torch and imported, as
`import flash_attn_2_cuda` does with a wheel. Broken: it is built with the C++ ABI of another torch wheel
(the one whose file name says the opposite of what this torch is). Fixed: built with the ABI of the torch
that will import it. The op is then used in a few training steps.
"""

import importlib.util
import subprocess
import sysconfig

import torch
from torch import nn
from torch.utils.cpp_extension import include_paths, library_paths

STEPS = 5
SOURCE = r"""
#include <Python.h>
#include <c10/util/Exception.h>

static PyObject* halve(PyObject*, PyObject* value) {
  const long n = PyLong_AsLong(value);
  TORCH_CHECK(n % 2 == 0, "halve() takes an even number, got ", n);
  return PyLong_FromLong(n / 2);
}
static PyMethodDef methods[] = {{"halve", halve, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "fused_ops", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_fused_ops() { return PyModule_Create(&module); }
"""


# region broken
def abi_flag() -> str:
    """Copied from the build script of another machine, whose torch wheel had the other string ABI."""
    other = not torch.compiled_with_cxx11_abi()
    return f"-D_GLIBCXX_USE_CXX11_ABI={int(other)}"
# endregion


# region fixed
def matching_abi_flag() -> str:
    """Asks the torch that will import the extension."""
    return f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
# endregion


def build(flag: str, folder):
    source, library = folder / "fused_ops.cpp", folder / f"fused_ops{sysconfig.get_config_var('EXT_SUFFIX')}"
    source.write_text(SOURCE)
    includes = [*include_paths(), sysconfig.get_paths()["include"]]
    command = ["g++", "-shared", "-fPIC", "-O0", "-std=c++20", flag, str(source), "-o", str(library)]
    command += [f"-I{p}" for p in includes] + [f"-L{p}" for p in library_paths()] + ["-lc10"]
    subprocess.run(command, check=True)
    print(f"built {library.name} with {flag} for torch {torch.__version__.split('+')[0]}")
    return library


def load(library):
    spec = importlib.util.spec_from_file_location("fused_ops", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=8, width=4, extension="fused_ops")
    library = build(matching_abi_flag() if ctx.fixed else abi_flag(), ctx.tmp)
    fused_ops = load(library)

    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rows = 0
    for step in range(STEPS):
        x = torch.randn(8, 4)
        half = fused_ops.halve(len(x))
        rows += half
        loss = (model(x[:half]) - x[:half].sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step={step} loss={loss.item():.4f}")
    ctx.result(rows=rows, steps=STEPS)
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results["steps"] == STEPS, "did not train to the end"
    assert out.results["rows"] == 4 * STEPS, f"the extension computed {out.results['rows']} rows"
