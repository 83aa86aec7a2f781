"""A compiled extension needs a newer C++ library than the one the loader finds first.

An extension that uses std::from_chars is compiled, which asks for a recent symbol version of libstdc++, and is imported by an
interpreter of its own. Broken: the loader's path begins with a system folder of an older distribution. There is none on this
machine: a library of the same name that declares the versions up to 3.4.28, those of GCC 10, stands in for it. Fixed: the compiler's
own libstdc++ comes first, as an environment's lib folder does. The loader and its refusal are the real ones.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROWS = 200
SOURCE = r"""
#include <Python.h>
#include <charconv>
#include <cstring>

static PyObject* parse(PyObject*, PyObject* text) {
  const char* s = PyUnicode_AsUTF8(text);
  double value = 0;
  std::from_chars(s, s + std::strlen(s), value);
  return PyFloat_FromDouble(value);
}
static PyMethodDef methods[] = {{"parse", parse, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "fast_rows", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_fast_rows() { return PyModule_Create(&module); }
"""
# The training script: reads its rows with the extension and fits a line to them.
TRAIN = """
import fast_rows
xs = [fast_rows.parse(f"{i / 100}") for i in range(ROWS)]
slope = 0.0
for step in range(50):
    error = [slope * x - 3 * x for x in xs]
    slope -= 0.1 * sum(e * x for e, x in zip(error, xs)) / len(xs)
    if step % 10 == 0:
        print(f"step={step} loss={sum(e * e for e in error) / len(xs):.4f}", flush=True)
print(f"rows={len(xs)} slope={slope:.2f}")
print("training finished after 50 steps")
"""


def old_system_folder(folder: Path) -> Path:
    """A libstdc++.so.6 that knows the symbol versions of GCC 10 and no newer ones."""
    folder.mkdir()
    chain, before = [], ""
    for name in ["GLIBCXX_3.4", *(f"GLIBCXX_3.4.{n}" for n in range(1, 29))]:
        chain.append(f"{name} {{ }}{before};")
        before = f" {name}"
    (folder / "versions.map").write_text("\n".join(chain) + "\nCXXABI_1.3 { };\n")
    (folder / "empty.c").write_text("int empty;\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libstdc++.so.6", f"-Wl,--version-script={folder}/versions.map",
                    str(folder / "empty.c"), "-o", str(folder / "libstdc++.so.6")], check=True)
    return folder


def compilers_folder() -> Path:
    found = subprocess.run(["g++", "-print-file-name=libstdc++.so.6"], check=True, capture_output=True, text=True)
    return Path(found.stdout.strip()).resolve().parent


# region broken
def library_path(system: Path, environment: Path) -> str:
    return f"{system}:{environment}"  # as `module load gcc/10` or a line in ~/.bashrc leaves it
# endregion


# region fixed
def library_path_of_environment(system: Path, environment: Path) -> str:
    return f"{environment}:{system}"  # the newer library first: it serves what was built for older ones too
# endregion


def build(folder: Path) -> None:
    source, library = folder / "fast_rows.cpp", folder / f"fast_rows{sysconfig.get_config_var('EXT_SUFFIX')}"
    source.write_text(SOURCE)
    subprocess.run(["g++", "-shared", "-fPIC", "-O1", "-std=c++17", str(source), "-o", str(library),
                    f"-I{sysconfig.get_paths()['include']}"], check=True)
    print(f"built {library.name}")


def run(ctx):
    ctx.workload(rows=ROWS, steps=50)
    build(ctx.tmp)
    choose = library_path_of_environment if ctx.fixed else library_path
    path = choose(old_system_folder(ctx.tmp / "system"), compilers_folder())
    done = subprocess.run(
        [sys.executable, "-c", TRAIN.replace("ROWS", str(ROWS))], cwd=ctx.tmp, text=True, capture_output=True,
        env={**os.environ, "LD_LIBRARY_PATH": path, "PYTHONPATH": str(ctx.tmp)},
    )
    print(done.stdout + done.stderr, end="")
    ctx.result(code=done.returncode, read="rows=200 slope=3.00" in done.stdout)
    if done.returncode:
        raise SystemExit(done.returncode)


def check(out):
    assert out.results.get("code") == 0, f"the training script ended with {out.results.get('code')}"
    assert out.results["read"], "the rows were not read as they were written"
