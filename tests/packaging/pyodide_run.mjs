// Runs the SDK under Pyodide in Node: reads a job {sources, signatures, inputs} and prints one JSON answer per input.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import path from "node:path";

const [jobFile, pyodideFolder] = process.argv.slice(2);
const job = JSON.parse(readFileSync(jobFile, "utf8"));
const { loadPyodide } = await import(pathToFileURL(path.join(pyodideFolder, "pyodide.mjs")).href);

const started = performance.now();
const pyodide = await loadPyodide({ indexURL: pyodideFolder + path.sep });
const loaded = performance.now();
pyodide.unpackArchive(new Uint8Array(readFileSync(job.archive)), "zip", { extractDir: "/faultbook" });
pyodide.FS.mkdirTree("/catalogue");
pyodide.FS.writeFile("/catalogue/signatures.json", new Uint8Array(readFileSync(job.signatures)));
pyodide.runPython(`
import sys, os, json
sys.path.insert(0, "/faultbook")
os.environ["FAULTBOOK_CATALOGUE"] = "/catalogue"
import faultbook
def answer(text):
    return json.dumps(faultbook.diagnose(text=text).to_dict(), sort_keys=True)
`);
const answer = pyodide.globals.get("answer");
const ready = performance.now();
const out = { answers: [], seconds: [], load: (loaded - started) / 1000, import: (ready - loaded) / 1000 };
for (const name of job.inputs) {
  const text = readFileSync(name, "utf8");
  const before = performance.now();
  out.answers.push(answer(text));
  out.seconds.push((performance.now() - before) / 1000);
}
console.log(JSON.stringify(out));
