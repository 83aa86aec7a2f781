// Compiles Python sources to the bytecode of the in-browser Python, by that Python itself (it runs under Node as well).
// The npm package ships its standard library as sources: compiling them anew on every visit was most of a cold start.
// In: a job file {pyodide, engine, stdlib, known, warm, out}: paths, and `warm`, Python that imports what a diagnosis needs;
// `known` is the standard library of an earlier run, or null. Out: both archives again, in `out`, every module that was
// imported as a .pyc without its source. Same bytes in, same bytes out.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const job = JSON.parse(readFileSync(process.argv[2], "utf8"));
const folder = path.resolve(job.pyodide);
const { loadPyodide } = await import(pathToFileURL(path.join(folder, "pyodide.mjs")).href);
const python = await loadPyodide({ indexURL: folder + path.sep, ...(job.known ? { stdLibURL: job.known } : {}) });
const given = { engine: job.engine, stdlib: job.stdlib, known: job.known || job.engine };
python.FS.mkdirTree("/in");
for (const name in given) python.FS.writeFile(`/in/${name}.zip`, new Uint8Array(readFileSync(given[name])));
python.runPython(`
import importlib.util, shutil, sys, zipfile
from importlib._bootstrap_external import _code_to_hash_pyc

shutil.unpack_archive("/in/engine.zip", "/engine")
sys.path.insert(0, "/engine")
exec(${JSON.stringify(job.warm)}, {})
used = {str(getattr(m, "__file__", "")).removesuffix("c") for m in list(sys.modules.values())}

def compiled(name, root):
    with (
        zipfile.ZipFile(f"/in/{name}.zip") as source,
        zipfile.ZipFile("/in/known.zip") as known,
        zipfile.ZipFile(f"/in/{name}-compiled.zip", "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for item in sorted(source.infolist(), key=lambda i: i.filename):
            if item.is_dir():
                continue
            data, path = source.read(item), item.filename
            if root + path in used:
                if path + "c" in known.namelist():
                    data = known.read(path + "c")
                else:
                    code = compile(data, root + path, "exec", dont_inherit=True)
                    data = bytes(_code_to_hash_pyc(code, importlib.util.source_hash(data), False))
                path += "c"
            target.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED, 9)

compiled("engine", "/engine/")
compiled("stdlib", next(p for p in sys.path if p.endswith(".zip")) + "/")
`);
mkdirSync(job.out, { recursive: true });
for (const name of ["engine", "stdlib"]) writeFileSync(path.join(job.out, `${name}.zip`), python.FS.readFile(`/in/${name}-compiled.zip`));
