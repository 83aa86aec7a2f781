// The worker that runs the engine: started on first use, ended when it takes too long, started again for the next log.
(() => {
  "use strict";
  const holder = document.getElementById("fb-config");
  const config = holder ? JSON.parse(holder.textContent) : { included: false };
  const shared = (window.faultbook = window.faultbook || {});
  let worker = null;
  let ready = false;
  let pending = null;
  let runs = 0;
  const tell = (state) => engine.onstate && engine.onstate(state); // {share: 0…1} while loading, {text} in words

  const size = (n) => (n < 1e3 ? `${n} B` : n < 1e6 ? `${(n / 1e3).toFixed(1)} kB` : `${(n / 1e6).toFixed(1)} MB`);

  function start() {
    if (worker || !config.included) return;
    ready = false;
    worker = new Worker(window.fbBase + "assets/faultbook/worker.js", { type: "module" });
    const mine = worker;
    worker.onmessage = ({ data }) => {
      if (mine !== worker) return; // the last words of one that was ended
      if (data.progress) {
        const share = Math.min(1, data.progress / config.bytes);
        if (!ready) tell({ share, text: share < 1 ? `Loading the engine, ${size(data.progress)} of ${size(config.bytes)}` : "Starting Python" });
      } else if (data.ready) {
        ready = true;
        tell({ text: "Reading the log" });
      } else if (data.failed) stop(`The engine did not start: ${data.failed}`);
      else if (pending && data.id === pending.id) {
        const { resolve, reject } = pending;
        pending = null;
        if (data.error) reject(new Error(data.error)); else resolve(data.result);
      }
    };
    worker.onerror = (event) => {
      // Pyodide's clean-up of proxies may fail outside a run; no answer depends on it.
      if (mine !== worker || /NoGil/.test(event.message || "")) { event.preventDefault(); return; }
      stop(`The engine stopped: ${event.message || "out of memory"}`);
    };
    worker.postMessage({ base: window.fbBase, config });
  }

  // A worker cannot be interrupted, only ended; the next diagnosis starts a new one.
  function stop(why) {
    if (worker) worker.terminate();
    worker = null;
    if (pending) { pending.reject(new Error(why)); pending = null; }
  }

  // files: [{name, blob}], a nameless one is pasted text. Resolves to the JSON that the command line prints;
  // with `share` to {"result", "markdown"} with names, hosts and paths replaced.
  async function diagnose(files, share = false) {
    const limit = engine.limit + (1000 * files.reduce((sum, f) => sum + f.blob.size, 0)) / 1e6; // a second more for each megabyte
    if (pending) stop("Replaced by a newer run.");
    start();
    tell(ready ? { text: "Reading the log" } : { share: 0, text: "Loading the engine" });
    const id = ++runs;
    const answer = new Promise((resolve, reject) => { pending = { id, resolve, reject }; });
    worker.postMessage({ id, share, files: files.map(({ name, blob }) => ({ name, blob })) });
    const timer = setTimeout(() => stop(`No answer within ${Math.round(limit / 1000)} seconds; the engine was restarted.`), limit);
    try { return await answer; } finally { clearTimeout(timer); if (runs === id) tell(null); }
  }

  const engine = { config, start, stop, diagnose, size, onstate: null, limit: 60000 }; // milliseconds
  shared.engine = engine;
})();
