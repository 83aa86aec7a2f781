// Facets over the list that is already in the page. The whole state lives in the address.
(() => {
  "use strict";
  const form = document.querySelector(".fb-facets");
  if (!form) return;
  const NAMES = {
    category: "Category", severity: "Severity", visibility: "How it shows", kind: "Kind", system: "System",
    stage: "Stage", evidence: "Evidence", proof: "Proof", device: "Device", action: "What to do",
  };
  const said = JSON.parse(form.dataset.names || "{}"); // facet → value → how it is written
  const ORDER = { severity: ["critical", "high", "medium", "low"] };
  const list = document.querySelector(".fb-rows");
  const say = document.querySelector(".fb-browse__count");
  const AT_ONCE = 30;
  const rows = [...list.children].map((element, index) => ({
    element, index, facets: JSON.parse(element.dataset.f),
    text: (element.textContent + " " + element.dataset.more).toLowerCase(),
    title: element.querySelector(".fb-row__title").textContent,
  }));
  let ordered = rows;
  const chosen = {};
  let words = "";
  let sort = "severity";

  function read() {
    const given = new URLSearchParams(location.search);
    for (const name in NAMES) chosen[name] = new Set(given.getAll(name));
    words = given.get("q") || "";
    sort = given.get("sort") === "title" ? "title" : "severity";
  }

  function write() {
    const out = new URLSearchParams();
    if (words) out.set("q", words);
    for (const name in NAMES) for (const value of chosen[name]) out.append(name, value);
    if (sort !== "severity") out.set("sort", sort);
    const query = out.toString();
    history.replaceState(null, "", query ? "?" + query : location.pathname);
  }

  const names = Object.keys(NAMES);
  // The facets that keep a row out: none means that it is shown, a single one that it counts for the values of that facet.
  const against = (row) => names.filter((name) => chosen[name].size && !(row.facets[name] || []).some((v) => chosen[name].has(v)));

  const boxes = {}; // facet → value → {input, number}
  function build() {
    const search = document.createElement("input");
    search.type = "search";
    search.name = "q";
    search.placeholder = "Filter by words";
    search.setAttribute("aria-label", "Filter by words");
    search.autocomplete = "off";
    search.addEventListener("input", () => { words = search.value.trim(); update(); });
    const order = document.createElement("select");
    order.setAttribute("aria-label", "Sort by");
    for (const [value, label] of [["severity", "Most severe first"], ["title", "By title"]]) order.add(new Option(label, value));
    order.addEventListener("change", () => { sort = order.value; arrange(); update(); });
    const more = document.createElement("details"); // folded away on a phone
    const summary = document.createElement("summary");
    summary.textContent = "Filters";
    more.append(summary);
    more.open = matchMedia("(min-width: 60em)").matches;
    form.append(search, order, more);
    for (const [name, label] of Object.entries(NAMES)) {
      const values = [...new Set(rows.flatMap((r) => r.facets[name] || []))];
      if (values.length < 2) continue;
      const rank = ORDER[name] || values.sort();
      values.sort((a, b) => rank.indexOf(a) - rank.indexOf(b));
      const set = document.createElement("fieldset");
      const legend = document.createElement("legend");
      legend.textContent = label;
      set.append(legend);
      boxes[name] = {};
      for (const value of values) {
        const line = document.createElement("label");
        line.className = "fb-facet";
        const input = document.createElement("input");
        input.type = "checkbox";
        input.addEventListener("change", () => {
          if (input.checked) chosen[name].add(value); else chosen[name].delete(value);
          update();
        });
        const text = document.createElement("span");
        text.textContent = (said[name] && said[name][value]) || value.replace(/[_-]/g, " ");
        const number = document.createElement("i");
        line.append(input, text, " ", number);
        set.append(line);
        boxes[name][value] = { input, number };
      }
      more.append(set);
    }
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    form.parentElement.classList.add("fb-browse--live");
    return { search, order, summary };
  }

  function arrange() {
    ordered = [...rows].sort((a, b) => (sort === "title" ? a.title.localeCompare(b.title) : a.index - b.index));
    list.append(...ordered.map((r) => r.element));
  }

  // A screenful at once, the rest while the reader looks at it: laying out a thousand rows takes a second.
  let pending = 0;
  function reveal(elements) {
    for (const element of elements.splice(0, AT_ONCE)) element.hidden = false;
    if (elements.length) pending = requestAnimationFrame(() => reveal(elements));
  }

  function update(push = true) {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    const numbers = Object.fromEntries(names.map((name) => [name, {}]));
    const count = (row, name) => { for (const v of row.facets[name] || []) numbers[name][v] = (numbers[name][v] || 0) + 1; };
    const appearing = [];
    let shown = 0;
    for (const row of ordered) {
      const out = wanted.every((w) => row.text.includes(w)) ? against(row) : null;
      const hidden = out === null || out.length > 0;
      if (hidden && !row.element.hidden) row.element.hidden = true;
      else if (!hidden && row.element.hidden) appearing.push(row.element);
      if (!hidden) { shown++; for (const name of names) count(row, name); } else if (out && out.length === 1) count(row, out[0]);
    }
    for (const name in boxes) {
      for (const [value, { input, number }] of Object.entries(boxes[name])) {
        number.textContent = numbers[name][value] || 0;
        input.checked = chosen[name].has(value);
        input.disabled = !numbers[name][value] && !input.checked;
        input.parentElement.classList.toggle("fb-facet--none", input.disabled);
      }
    }
    const many = names.reduce((sum, name) => sum + chosen[name].size, 0);
    summary.textContent = many ? `Filters (${many})` : "Filters";
    cancelAnimationFrame(pending);
    reveal(appearing);
    say.textContent = shown === rows.length ? `${rows.length} failures` : `${shown} of ${rows.length} failures`;
    if (push) write();
  }

  if (!rows.length) return;
  read();
  const { search, order, summary } = build();
  const show = () => { search.value = words; order.value = sort; if (sort !== "severity" || ordered !== rows) arrange(); update(false); };
  show();
  addEventListener("popstate", () => { read(); show(); });
})();
