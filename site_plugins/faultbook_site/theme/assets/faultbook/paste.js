// The diagnosis box: takes text and files, runs the engine, shows the answer. Nothing is sent anywhere.
(() => {
  "use strict";
  const box = document.querySelector(".fb-paste");
  if (!box || !window.faultbook || !window.faultbook.engine) return;
  const { engine, element, button, show, pack, unpack } = window.faultbook;
  const { config, size } = engine;
  const ui = box.querySelector(".fb-paste__ui");
  const fold = box.closest("details"); // on entry pages the box is folded
  const slug = box.dataset.slug || "";
  const SMALL = 20000; // longer text is kept in memory: a text area of megabytes freezes the page
  const LISTED = 6; // files named one by one
  const LONGEST_REPORT = 5000; // of an issue's text in an address
  const quiet = "fb-button fb-button--quiet";

  if (!config.included) {
    box.querySelector(".fb-paste__nojs").prepend("The in-browser engine was not included in this build. ");
    return;
  }
  box.querySelector(".fb-paste__nojs").hidden = true;
  ui.hidden = false;

  // --- what was given -------------------------------------------------------------------------
  let given = []; // {name, blob}
  const area = element("textarea", {
    "aria-label": "Log text", spellcheck: "false", autocomplete: "off", rows: "5",
    placeholder: "Paste the log here, or drop files: one, or one per rank.",
  });
  const listing = element("ul", { class: "fb-given" });
  const drop = element("div", { class: "fb-drop" }, area, listing);
  const picker = element("input", { type: "file", multiple: true, hidden: true, "aria-label": "Log files" });
  const folder = element("input", { type: "file", multiple: true, webkitdirectory: true, hidden: true, "aria-label": "Folder of logs" });

  async function showGiven() {
    const items = await Promise.all(given.slice(0, LISTED).map(async (item, index) => {
      const head = await item.blob.slice(0, 300).text();
      return element("li", {},
        element("code", {}, item.name || "pasted text"), element("span", {}, head.split("\n").find((l) => l.trim()) || ""),
        size(item.blob.size), button("remove", () => { given.splice(index, 1); showGiven(); }, ""));
    }));
    if (given.length > LISTED) {
      const rest = given.slice(LISTED).reduce((sum, item) => sum + item.blob.size, 0);
      items.push(element("li", {}, element("span", {}, `and ${given.length - LISTED} more files`), size(rest), button("remove all", () => { given = []; showGiven(); }, "")));
    }
    listing.replaceChildren(...items);
    area.hidden = given.length > 0;
  }
  const add = (items) => { given = given.concat(items); area.value = ""; engine.start(); return showGiven(); };

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
    if (event.dataTransfer.files.length) filesOf(event.dataTransfer).then(add);
    else add([{ name: "", blob: new Blob([event.dataTransfer.getData("text")]) }]);
  });
  // Files that were dropped, those inside of folders with their paths.
  async function filesOf(transfer) {
    const entries = [...transfer.items].map((item) => item.webkitGetAsEntry && item.webkitGetAsEntry()).filter(Boolean);
    if (!entries.some((entry) => entry.isDirectory)) return [...transfer.files].map((f) => ({ name: f.name, blob: f }));
    const found = [];
    for (let entry = entries.shift(); entry; entry = entries.shift()) {
      if (entry.isFile) {
        found.push({ name: entry.fullPath.slice(1), blob: await new Promise((done, failed) => entry.file(done, failed)) });
        continue;
      }
      const reader = entry.createReader(); // gives a hundred or so at a time, then none
      for (let some = [0]; some.length;) {
        some = await new Promise((done, failed) => reader.readEntries(done, failed));
        entries.push(...some);
      }
    }
    return found;
  }
  for (const input of [picker, folder]) {
    input.addEventListener("change", () => {
      add([...input.files].map((f) => ({ name: f.webkitRelativePath || f.name, blob: f })));
      input.value = "";
    });
  }

  // --- running --------------------------------------------------------------------------------
  const bar = element("progress", { max: "1", "aria-label": "Progress" });
  const say = element("span", { role: "status" });
  const progress = element("div", { class: "fb-progress", hidden: true }, bar, say, button("Cancel", () => engine.stop("Cancelled."), quiet));
  const result = element("div", { class: "fb-result", "aria-live": "polite" });
  let asked = false; // loading ahead of a question is not shown
  engine.onstate = (state) => {
    progress.hidden = !state || !asked;
    if (!state) return;
    say.textContent = state.text;
    if (state.share === undefined) bar.removeAttribute("value"); else bar.value = state.share;
  };

  let last = [];
  async function go() {
    const files = given.length ? given : [{ name: "", blob: new Blob([area.value]) }];
    if (!given.length && !area.value.trim()) { area.focus(); return; }
    result.replaceChildren();
    last = files;
    asked = true;
    try {
      const json = await engine.diagnose(files);
      window.fbLast = json;
      const d = JSON.parse(json);
      result.replaceChildren(...show(d, slug), offers(d, json));
      const { top, bottom } = result.getBoundingClientRect();
      if (top > innerHeight * 0.7 || bottom < 0) result.scrollIntoView({ block: "start" });
    } catch (problem) {
      result.replaceChildren(element("p", {}, problem.message));
    } finally { asked = false; }
  }

  // --- passing it on: the run is repeated with names, hosts and paths replaced -----------------
  const masked = async () => JSON.parse(await engine.diagnose(last, true));
  async function copy(event, make) {
    const pressed = event.target;
    try {
      await navigator.clipboard.writeText(await make(await masked()));
      pressed.textContent = "Copied, names masked";
    } catch (problem) { pressed.textContent = problem.message; }
  }
  const asLink = async ({ result: d }) => `${location.href.split("#")[0]}#result=${await pack(d)}`;

  // The reader sees the masked text before it goes anywhere, and sends it by following a link.
  async function report(event, d) {
    const { markdown, result: safe } = await masked();
    const first = safe.first_abnormal ? safe.first_abnormal.text.trim().slice(0, 100) : "";
    const title = d.verdict === "diagnosed" ? `Wrong diagnosis: ${d.diagnoses[0].entry}` : `Not recognised: ${first || d.verdict}`;
    const cut = markdown.length > LONGEST_REPORT ? markdown.slice(0, LONGEST_REPORT) + "\n… (shortened; please paste the rest)" : markdown;
    const template = d.verdict === "diagnosed" ? "diagnosis-wrong.yml" : "run-failed.yml"; // the project's issue forms
    const where = config.issues && `${config.issues}?${new URLSearchParams({ template, title, report: cut })}`;
    const text = element("textarea", { readonly: true, rows: "10", "aria-label": "The report, names masked" });
    text.value = markdown;
    const pressed = element("p", { class: "fb-paste__bar" },
      button("Copy the report", (e) => { navigator.clipboard.writeText(markdown); e.target.textContent = "Copied"; }, quiet),
      where ? element("a", { class: "fb-button", href: where, rel: "noopener" }, "Open it as an issue") : "");
    event.target.closest(".fb-offers").after(element("div", { class: "fb-report" },
      element("h4", {}, "The report"), element("p", { class: "fb-paste__note" }, "User names, hosts, paths and addresses are replaced. Read it before you post it."), text, pressed));
    event.target.remove();
  }

  function offers(d, json) {
    return element("p", { class: "fb-paste__bar fb-offers" },
      button("Copy share link", (event) => copy(event, asLink), quiet),
      button("Copy for an issue", (event) => copy(event, (a) => a.markdown), quiet),
      button("Copy as JSON", (event) => { navigator.clipboard.writeText(json); event.target.textContent = "Copied"; }, quiet),
      d.verdict === "healthy" ? "" : button(d.verdict === "diagnosed" ? "Wrong? Report it" : "Report this failure", (event) => report(event, d), quiet));
  }

  async function showShared() {
    const code = location.hash.match(/^#result=([\w-]{1,60000})$/);
    if (!code) return;
    if (fold) fold.open = true;
    try {
      result.replaceChildren(...show(await unpack(code[1]), slug, true));
    } catch { result.replaceChildren(element("p", {}, "This share link is damaged.")); }
    box.scrollIntoView({ block: "start" });
  }

  // --- putting it together --------------------------------------------------------------------
  async function sample(item) {
    given = await Promise.all(item.urls.map(async (url) => ({
      name: item.urls.length > 1 ? url.split("/").pop() : "", blob: await fetch(window.fbBase + url).then((r) => r.blob()),
    })));
    await showGiven();
    return go();
  }
  const samples = element("div", { class: "fb-paste__samples" }, config.samples.length ? "No log at hand? Try one:" : "",
    config.samples.map((s) => button(s.title, () => sample(s), "")));
  ui.append(drop, picker, folder, element("div", { class: "fb-paste__bar" },
    button("Diagnose", go), button("Choose files", () => picker.click(), quiet), button("Choose a folder", () => folder.click(), quiet),
    element("span", { class: "fb-paste__safe" }, "Runs here; nothing is uploaded")), samples, progress, result);
  // Loading takes seconds: it begins with the first sign that the box will be used.
  for (const sign of ["focusin", "pointerdown", "dragenter"]) ui.addEventListener(sign, engine.start, { once: true });
  area.addEventListener("input", engine.start, { once: true });
  area.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) go(); });
  showShared();
  addEventListener("hashchange", showShared);
})();
