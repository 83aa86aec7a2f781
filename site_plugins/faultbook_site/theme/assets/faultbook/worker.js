// The engine in the browser: Pyodide runs the same `faultbook` package as the command line.
// Messages in: {base, config} once, then {id, share, files: [{name, blob}]}. Out: {progress}, {ready}, {id, result | error}.
let python = null;

// Counts the bytes of everything that is fetched, so that the page can draw a progress bar.
let loaded = 0;
const plainFetch = self.fetch.bind(self);
self.fetch = async (...request) => {
  const response = await plainFetch(...request);
  if (!response.ok || !response.body) return response;
  const counted = response.body.pipeThrough(new TransformStream({
    transform(chunk, controller) {
      loaded += chunk.byteLength;
      self.postMessage({ progress: loaded });
      controller.enqueue(chunk);
    },
  }));
  return new Response(counted, { status: response.status, headers: response.headers });
};

const START = `
import json, os, shutil, sys
sys.path.insert(0, "/engine")
import faultbook

def fb_run(request):
    request = json.loads(request)
    names, share = request["names"], request["share"]
    folder = "/logs"
    options = {"share": True} if share else {}
    try:
        if len(names) == 1 and names[0] == "":
            with open("/logs/text", encoding="utf-8", errors="replace", newline="") as handle:
                found = faultbook.diagnose(text=handle.read(), **options)
        else:
            os.chdir(folder)
            found = faultbook.diagnose(*names, **options)
        if share:
            from faultbook.render import as_markdown
            return json.dumps({"result": found.to_dict(), "markdown": as_markdown(found)})
        return json.dumps(found.to_dict())
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)

# Loads the catalogue and what a diagnosis imports, while the reader is still looking for the log.
faultbook.diagnose(text="step 1 loss 2.0\\nRuntimeError: CUDA error\\n")
`;

async function start(base, config) {
  const { loadPyodide } = await import(base + config.pyodide + "pyodide.mjs");
  const [py, archive] = await Promise.all([
    loadPyodide({ indexURL: base + config.pyodide, stdLibURL: base + config.stdlib, stdout: () => {}, stderr: () => {} }),
    fetch(base + config.package).then((r) => {
      if (!r.ok) throw new Error(`the engine could not be fetched (${r.status})`);
      return r.arrayBuffer();
    }),
  ]);
  py.FS.mkdirTree("/engine");
  py.unpackArchive(archive, "zip", { extractDir: "/engine" });
  py.runPython(START);
  python = py;
}

// Names come from the user's disk; only their last part is used, made unique.
async function place(files) {
  python.FS.mkdirTree("/logs");
  if (files.length === 1 && files[0].name === "") {
    python.FS.writeFile("/logs/text", new Uint8Array(await files[0].blob.arrayBuffer()));
    return [""];
  }
  const taken = new Set();
  const names = [];
  for (const { name, blob } of files) {
    let last = name.split(/[\\/]/).filter((p) => p && p !== "." && p !== "..").join("/") || "pasted.log";
    for (let n = 2; taken.has(last); n++) last = last.replace(/(~\d+)?$/, "~" + n);
    taken.add(last);
    const folder = last.split("/").slice(0, -1).join("/");
    if (folder) python.FS.mkdirTree("/logs/" + folder);
    python.FS.writeFile("/logs/" + last, new Uint8Array(await blob.arrayBuffer()));
    names.push(last);
  }
  return names;
}

let starting = null;
self.onmessage = async ({ data }) => {
  if (data.config) {
    starting = start(data.base, data.config).then(
      () => self.postMessage({ ready: true }),
      (problem) => self.postMessage({ failed: String(problem.message || problem) }),
    );
    return;
  }
  await starting;
  if (!python) return;
  try {
    // A JSON string is a Python string literal too; text in and text out leaves no proxy to clean up.
    const request = JSON.stringify({ names: await place(data.files), share: Boolean(data.share) });
    const result = python.runPython(`fb_run(${JSON.stringify(request)})`);
    self.postMessage({ id: data.id, result });
  } catch (problem) {
    const lines = String(problem.message || problem).trim().split("\n");
    self.postMessage({ id: data.id, error: lines[lines.length - 1] });
  }
};
