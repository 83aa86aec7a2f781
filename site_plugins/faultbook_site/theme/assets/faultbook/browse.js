// Facets over the list that is already in the page. The whole state lives in the address.
(() => {
  "use strict";
  const form = document.querySelector(".fb-facets");
  if (!form) return;
  const NAMES = {
    category: "Category", severity: "Severity", visibility: "How it shows", kind: "Kind", system: "System",
    stage: "Stage", evidence: "Evidence", proof: "Proof", device: "Device", action: "What to do",
  };
  const ORDER = { severity: ["critical", "high", "medium", "low"] };
  const list = document.querySelector(".fb-rows");
  const count = document.querySelector(".fb-browse__count");
  const rows = [...list.children].map((element, index) => ({
    element, index, facets: JSON.parse(element.dataset.f),
    text: (element.textContent + " " + element.dataset.more).toLowerCase(),
    title: element.querySelector(".fb-row__title").textContent,
  }));
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

  const passes = (row, except) => Object.keys(NAMES).every((name) =>
    name === except || !chosen[name].size || (row.facets[name] || []).some((v) => chosen[name].has(v)));
  const found = (row) => words.toLowerCase().split(/\s+/).every((w) => !w || row.text.includes(w));

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
    order.addEventListener("change", () => { sort = order.value; update(); });
    const more = document.createElement("details"); // folded away on a phone
    const summary = document.createElement("summary");
    summary.textContent = "Filters";
    more.append(summary);
    more.open = matchMedia("(min-width: 60em)").matches || Object.values(chosen).some((c) => c.size);
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
        text.textContent = value.replace(/[_-]/g, " ");
        const number = document.createElement("i");
        line.append(input, text, " ", number);
        set.append(line);
        boxes[name][value] = { input, number };
      }
      more.append(set);
    }
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    return { search, order };
  }

  function update(push = true) {
    const matching = rows.filter(found);
    let shown = 0;
    for (const row of rows) {
      row.element.hidden = !(passes(row) && found(row));
      if (!row.element.hidden) shown++;
    }
    for (const name in boxes) {
      const numbers = {};
      for (const row of matching) if (passes(row, name)) for (const v of row.facets[name] || []) numbers[v] = (numbers[v] || 0) + 1;
      for (const [value, { input, number }] of Object.entries(boxes[name])) {
        number.textContent = numbers[value] || 0;
        input.checked = chosen[name].has(value);
        input.disabled = !numbers[value] && !input.checked;
      }
    }
    const order = [...rows].sort((a, b) => (sort === "title" ? a.title.localeCompare(b.title) : a.index - b.index));
    if (list.firstElementChild !== order[0].element || sort !== update.sorted) {
      list.append(...order.map((r) => r.element));
      update.sorted = sort;
    }
    count.textContent = shown === rows.length ? `${rows.length} failures` : `${shown} of ${rows.length} failures`;
    if (push) write();
  }

  if (!rows.length) return;
  read();
  const { search, order } = build();
  const show = () => { search.value = words; order.value = sort; update(false); };
  show();
  addEventListener("popstate", () => { read(); show(); });
})();
