// The diagnosis box: takes text and files, runs the engine in a worker, shows the answer. Nothing is sent anywhere.
(() => {
  "use strict";
  const box = document.querySelector(".fb-paste");
  const holder = document.getElementById("fb-config");
  if (!box || !holder) return;
  const config = JSON.parse(holder.textContent);
  const ui = box.querySelector(".fb-paste__ui");
  const SMALL = 20000; // longer text is kept in memory: a text area of megabytes freezes the page
  const LIMIT_MS = 60000;

  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value === true) made.setAttribute(key, "");
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
    }
    made.append(...children.filter((c) => c !== null && c !== undefined && c !== ""));
    return made;
  };
  const button = (label, onclick, css = "fb-button") => element("button", { type: "button", class: css, onclick }, label);

  if (!config.included) {
    box.querySelector(".fb-paste__nojs").prepend("The in-browser engine was not included in this build. ");
    return;
  }
  box.querySelector(".fb-paste__nojs").hidden = true;
  ui.hidden = false;

  // --- what was given -------------------------------------------------------------------------
  let given = []; // {name, blob}
  const area = element("textarea", {
    "aria-label": "Log text", spellcheck: "false", autocomplete: "off", wrap: "off",
    placeholder: "Paste a log, or drop files here: one, or one per rank. Nothing leaves your browser.",
  });
  const listing = element("ul", { class: "fb-given" });
  const drop = element("div", { class: "fb-drop" }, area, listing);
  const picker = element("input", { type: "file", multiple: true, hidden: true, "aria-label": "Log files" });
  const size = (n) => (n < 1e3 ? `${n} B` : n < 1e6 ? `${(n / 1e3).toFixed(1)} kB` : `${(n / 1e6).toFixed(1)} MB`);

  async function showGiven() {
    listing.replaceChildren(...await Promise.all(given.map(async (item, index) => {
      const head = await item.blob.slice(0, 300).text();
      return element("li", {},
        element("code", {}, item.name || "pasted text"), element("span", {}, head.split("\n").find((l) => l.trim()) || ""),
        size(item.blob.size), button("remove", () => { given.splice(index, 1); showGiven(); }, ""));
    })));
    area.hidden = given.length > 0;
  }
  const add = (items) => { given = given.concat(items); area.value = ""; engine(); return showGiven(); };

  area.addEventListener("paste", (event) => {
    const text = event.clipboardData.getData("text");
    if (text.length < SMALL) return;
    event.preventDefault();
    add([{ name: "", blob: new Blob([text]) }]);
  });
  drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("fb-drop--over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("fb-drop--over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("fb-drop--over");
    const files = [...event.dataTransfer.files];
    if (files.length) add(files.map((f) => ({ name: f.name, blob: f })));
    else add([{ name: "", blob: new Blob([event.dataTransfer.getData("text")]) }]);
  });
  picker.addEventListener("change", () => {
    add([...picker.files].map((f) => ({ name: f.webkitRelativePath || f.name, blob: f })));
    picker.value = "";
  });

  // --- the engine -----------------------------------------------------------------------------
  let worker = null;
  let ready = false;
  let pending = null;
  let runs = 0;
  const bar = element("progress", { max: "1", value: "0", "aria-label": "Loading the engine" });
  const say = element("span", { role: "status" });
  const progress = element("div", { class: "fb-progress", hidden: true }, bar, say, button("Cancel", () => stop("Cancelled."), "fb-button fb-button--quiet"));
  const result = element("div", { class: "fb-result", "aria-live": "polite" });

  function engine() {
    if (worker) return;
    ready = false;
    worker = new Worker(window.fbBase + "assets/faultbook/worker.js", { type: "module" });
    const mine = worker;
    worker.onmessage = ({ data }) => {
      if (mine !== worker) return; // the last words of one that was ended
      if (data.progress) {
        if (!ready) { bar.value = Math.min(1, data.progress / config.bytes); say.textContent = bar.value < 1 ? `Loading the engine, ${size(data.progress)}` : "Starting Python"; }
      } else if (data.ready) { ready = true; bar.removeAttribute("value"); say.textContent = "Reading the log"; }
      else if (data.failed) { stop(`The engine did not start: ${data.failed}`); }
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

  async function diagnose(files, share = false) {
    if (pending) stop("Replaced by a newer run.");
    engine();
    progress.hidden = false;
    say.textContent = ready ? "Reading the log" : "Loading the engine";
    if (ready) bar.removeAttribute("value");
    const id = ++runs;
    const sent = await Promise.all(files.map(async (f) => ({ name: f.name, data: await f.blob.arrayBuffer() })));
    const answer = new Promise((resolve, reject) => { pending = { id, resolve, reject }; });
    worker.postMessage({ id, share, files: sent }, sent.map((f) => f.data));
    const timer = setTimeout(() => stop(`No answer within ${LIMIT_MS / 1000} seconds; the engine was restarted.`), LIMIT_MS);
    try { return await answer; } finally { clearTimeout(timer); if (runs === id) progress.hidden = true; }
  }

  // --- sharing: the run is repeated with names, hosts and paths replaced, and travels in the fragment ---
  const through = (stream, bytes) => new Response(new Blob([bytes]).stream().pipeThrough(stream));
  async function packed(text) {
    const bytes = new Uint8Array(await through(new CompressionStream("deflate-raw"), new TextEncoder().encode(text)).arrayBuffer());
    let binary = "";
    for (const byte of bytes) binary += String.fromCharCode(byte);
    return btoa(binary).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  }
  async function unpacked(code) {
    const binary = atob(code.replace(/-/g, "+").replace(/_/g, "/"));
    return through(new DecompressionStream("deflate-raw"), Uint8Array.from(binary, (c) => c.charCodeAt(0))).text();
  }
  let last = [];
  async function shared(event, make) {
    const pressed = event.target;
    try {
      const answer = JSON.parse(await diagnose(last, true));
      await navigator.clipboard.writeText(await make(answer));
      pressed.textContent = "Copied, names masked";
    } catch (problem) { pressed.textContent = problem.message; }
  }
  const asLink = async ({ result: d }) => `${window.fbBase}#result=${await packed(JSON.stringify(d))}`;
  async function showShared() {
    const code = location.hash.match(/^#result=([\w-]{1,60000})$/);
    if (!code) return;
    try {
      const d = JSON.parse(await unpacked(code[1]));
      if (d.schema !== "faultbook.diagnosis/1") throw new Error("not a diagnosis");
      show(d, true);
    } catch { result.replaceChildren(element("p", {}, "This share link is damaged.")); }
  }

  async function go() {
    const files = given.length ? given : [{ name: "", blob: new Blob([area.value]) }];
    if (!given.length && !area.value.trim()) { area.focus(); return; }
    result.replaceChildren();
    last = files;
    try {
      const json = await diagnose(files);
      window.fbLast = json;
      show(JSON.parse(json));
    } catch (problem) {
      result.replaceChildren(element("p", {}, problem.message));
    }
  }

  // --- the answer -----------------------------------------------------------------------------
  const VERDICTS = { diagnosed: "Known failure", unrecognised: "Not recognised", inconclusive: "Inconclusive", stopped: "Ended from outside", healthy: "Looks healthy" };
  const words = (id) => String(id).replace(/_/g, " ");
  const entryUrl = (slug) => window.fbBase + "entries/" + encodeURIComponent(slug) + "/";
  const where = (line) => [line.file && line.file !== "<text>" ? line.file : "", line.line ? `line ${line.line}` : "", line.rank !== null && line.rank !== undefined ? `rank ${line.rank}` : ""].filter(Boolean).join(" · ");
  const lines = (items) => element("ul", { class: "fb-lines", tabindex: "0", "aria-label": "Evidence" }, ...items.map((e) => element("li", {}, element("i", {}, where(e)), e.text || e.what || "")));
  const fact = (name, ...value) => (value.some(Boolean) ? [element("dt", {}, name), element("dd", {}, ...value)] : []);

  function card(found, index) {
    const act = found.action || {};
    return element("div", { class: "fb-card" + (index === 0 ? " fb-card--primary" : "") },
      element("h3", {}, element("a", { href: entryUrl(found.entry) }, found.title),
        element("small", {}, `${found.role}, confidence ${Math.round(found.confidence * 100)} %`)),
      found.evidence && found.evidence.length ? lines(found.evidence.slice(0, 6)) : "",
      element("dl", {},
        ...fact("Do now", act.do ? element("b", {}, words(act.do)) : "", act.when ? `: ${act.when}` : ""),
        ...fact("Fix", found.fix), ...fact("Verify", found.verify)));
  }

  function show(d, received = false) {
    const out = [received ? element("p", { class: "fb-paste__note" }, "A shared result: made in someone else's browser, not checked here.") : "",
      element("p", { class: `fb-verdict fb-verdict--${d.verdict}`, tabindex: "-1" },
      element("span", { class: "fb-chip" }, VERDICTS[d.verdict] || d.verdict), d.summary || "")];
    const here = box.dataset.slug;
    if (here) {
      const mine = d.diagnoses.find((f) => f.entry === here);
      out.push(element("p", { class: "fb-here" }, mine
        ? `Yes: this entry matches (${mine.role}).`
        : d.diagnoses.length ? "This entry does not match. What does:" : "This entry does not match, and no other does."));
    }
    const first = d.initiating;
    if (first) {
      const who = first.rank !== null && first.rank !== undefined ? `rank ${first.rank}` : first.node ? `node ${first.node}` : { all: "all ranks", outside: "outside the job", unknown: "unknown" }[first.scope] || first.scope;
      out.push(element("dl", {}, ...fact("Who started it", element("b", {}, who), first.confidence !== "none" ? ` (${first.confidence} evidence)` : ""), ...fact("How we know", first.basis)));
    }
    out.push(...d.diagnoses.map(card));
    if (d.verdict !== "diagnosed" && d.first_abnormal) out.push(element("h3", {}, "First abnormal line"), lines([d.first_abnormal]));
    if (d.leads && d.leads.length) out.push(element("h3", {}, "Leads, not findings"), element("ul", {}, ...d.leads.slice(0, 6).map((l) => element("li", {}, l.text, l.line ? ` (${where(l)})` : ""))));
    if (d.collateral && d.collateral.length) {
      out.push(element("details", {}, element("summary", {}, `Collateral: ${d.collateral.length} kinds of follow-up lines`),
        element("ul", {}, ...d.collateral.slice(0, 12).map((c) => element("li", {}, `${words(c.what)} × ${c.count}`)))));
    }
    if (d.not_examined && d.not_examined.length) out.push(element("p", { class: "fb-paste__note" }, `Not examined: ${d.not_examined.join("; ")}`));
    const text = JSON.stringify(d, null, 1);
    const quiet = "fb-button fb-button--quiet";
    out.push(element("p", { class: "fb-paste__bar" },
      button("Copy as JSON", (event) => { navigator.clipboard.writeText(text); event.target.textContent = "Copied"; }, quiet),
      received ? "" : button("Copy for an issue", (event) => shared(event, (a) => a.markdown), quiet),
      received ? "" : button("Copy share link", (event) => shared(event, asLink), quiet),
      !received && config.issues && d.verdict !== "healthy"
        ? element("a", { href: config.issues, rel: "noopener" }, d.verdict === "diagnosed" ? "Wrong? Report it" : "Report this failure") : ""));
    result.replaceChildren(...out.filter(Boolean));
  }

  // --- putting it together --------------------------------------------------------------------
  async function sample(item) {
    const blob = await fetch(window.fbBase + item.url).then((r) => r.blob());
    given = [{ name: "", blob }];
    await showGiven();
    return go();
  }
  const samples = element("div", { class: "fb-paste__samples" }, config.samples.length ? "Try a sample:" : "",
    ...config.samples.map((s) => button(s.title, () => sample(s), "")));
  ui.append(drop, picker, element("div", { class: "fb-paste__bar" },
    button("Diagnose", go), button("Choose files", () => picker.click(), "fb-button fb-button--quiet"), samples), progress, result);
  area.addEventListener("input", engine, { once: true });
  showShared();
  addEventListener("hashchange", showShared);
})();
