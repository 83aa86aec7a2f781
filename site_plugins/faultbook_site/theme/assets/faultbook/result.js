// A diagnosis (the JSON of the command line) as elements of the page. Everything in it came from a log: it is only ever text.
(() => {
  "use strict";
  const VERDICTS = { diagnosed: "Known failure", unrecognised: "Not recognised", inconclusive: "Inconclusive", stopped: "Ended from outside", healthy: "Looks healthy" };
  const ACTIONS = {
    retry: "Retry", exclude_node: "Exclude the node", rollback: "Roll back", fix_code: "Fix the code", fix_config: "Fix the configuration",
    fix_data: "Fix the data", fix_environment: "Fix the environment", replace_hardware: "Replace the hardware",
  };
  const ROLES = { primary: "the cause", contributing: "contributing", collateral: "a consequence" };
  const SCOPES = { all: "all ranks", outside: "outside the job", unknown: "unknown" };
  const MOST_RANKS = 16;

  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value === true) made.setAttribute(key, "");
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
    }
    made.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== ""));
    return made;
  };
  const button = (label, onclick, css = "fb-button") => element("button", { type: "button", class: css, onclick }, label);

  const words = (id) => String(id).replace(/_/g, " ");
  const known = (value) => value !== null && value !== undefined;
  // Entries write code between backticks; odd ones stay as they are.
  const inline = (text) => String(text || "").split(/(`[^`]+`)/).map((part) => (/^`[^`]+`$/.test(part) ? element("code", {}, part.slice(1, -1)) : part));
  const entryUrl = (slug) => window.fbBase + "entries/" + encodeURIComponent(slug) + "/";
  const place = (line) => {
    const named = line.file && line.file !== "<text>";
    const at = named ? `${line.file}${line.line ? `:${line.line}` : ""}` : line.line ? `line ${line.line}` : "";
    return [at, known(line.rank) ? `rank ${line.rank}` : ""].filter(Boolean).join(" · ");
  };
  const lines = (items) => element("ul", { class: "fb-lines", "aria-label": "Evidence" }, items.map((e) => element("li", {}, element("i", {}, place(e)), element("span", {}, e.text || e.what || ""))));
  const fact = (name, ...value) => (value.flat().some(Boolean) ? [element("dt", {}, name), element("dd", {}, ...value)] : []);
  const title = (found) => element("a", { href: entryUrl(found.entry) }, inline(found.title));

  function confidence(found) {
    const share = Math.round(found.confidence * 100);
    return element("span", { class: "fb-sure" }, element("i", { style: `--share: ${share}%`, "aria-hidden": "true" }), `${share} % confidence`);
  }

  function card(found, index) {
    const act = found.action || {};
    return element("div", { class: "fb-card" + (index === 0 ? " fb-card--primary" : "") },
      index === 0 ? "" : element("h3", {}, title(found), element("small", {}, ROLES[found.role] || found.role, confidence(found))),
      found.evidence && found.evidence.length ? lines(found.evidence.slice(0, 6)) : "",
      element("dl", {},
        fact("Do now", act.do ? element("b", {}, ACTIONS[act.do] || words(act.do)) : "", act.when ? [": ", inline(act.when)] : ""),
        fact("Fix", inline(found.fix)), fact("Verify", inline(found.verify))),
      index === 0 ? element("p", { class: "fb-card__more" }, element("a", { href: entryUrl(found.entry) }, "The whole entry: cause, code that fails, code that passes")) : "");
  }

  function initiating(first) {
    if (!first) return "";
    const who = known(first.rank) ? `rank ${first.rank}` : first.node ? `node ${first.node}` : SCOPES[first.scope] || first.scope;
    return element("dl", { class: "fb-who" },
      fact("Who started it", element("b", {}, who), first.confidence !== "none" ? ` (${first.confidence} evidence)` : ""), fact("How we know", first.basis));
  }

  // One row a rank, the one that started it first; only where ranks can be compared.
  function timeline(d) {
    const rows = new Map();
    for (const item of d.timeline || []) if (known(item.rank)) rows.set(item.rank, [...(rows.get(item.rank) || []), item]);
    if (rows.size < 2) return "";
    const guilty = d.initiating ? d.initiating.rank : null;
    const ranks = [...rows.keys()].sort((a, b) => (b === guilty) - (a === guilty) || a - b);
    const body = ranks.slice(0, MOST_RANKS).map((rank) => element("tr", { class: rank === guilty ? "fb-ranks__first" : "" },
      element("th", { scope: "row" }, `rank ${rank}`),
      element("td", {}, rows.get(rank).map((i) => element("span", {}, i.time ? element("i", {}, String(i.time)) : "", i.what)))));
    const rest = ranks.length > MOST_RANKS ? element("p", { class: "fb-paste__note" }, `and ${ranks.length - MOST_RANKS} more ranks`) : "";
    return element("details", {}, element("summary", {}, `What each of ${ranks.length} ranks did last`),
      element("table", { class: "fb-ranks" }, element("tbody", {}, body)), rest);
  }

  // `slug`: the entry of the page, if it is one. `received`: the result came by a share link.
  function show(d, slug = "", received = false) {
    const [first] = d.diagnoses;
    const out = [received ? element("p", { class: "fb-paste__note" }, "A shared result: made in someone else's browser, not checked here.") : ""];
    if (slug) {
      const mine = d.diagnoses.find((f) => f.entry === slug);
      out.push(element("p", { class: "fb-here" + (mine ? " fb-here--yes" : "") }, mine
        ? `Yes: this entry matches (${ROLES[mine.role] || mine.role}).`
        : d.diagnoses.length ? "This entry does not match. What does:" : "This entry does not match, and no other does."));
    }
    out.push(element("div", { class: `fb-verdict fb-verdict--${d.verdict}` },
      element("span", { class: "fb-chip" }, VERDICTS[d.verdict] || d.verdict),
      element("h3", {}, first ? title(first) : d.summary || ""), first ? confidence(first) : ""));
    out.push(initiating(d.initiating));
    out.push(...d.diagnoses.map(card));
    if (d.verdict !== "diagnosed" && d.first_abnormal) out.push(element("h4", {}, "First abnormal line"), lines([d.first_abnormal]));
    if (d.leads && d.leads.length) {
      out.push(element("h4", {}, "Leads, not findings"),
        element("ul", {}, d.leads.slice(0, 6).map((l) => element("li", {}, inline(l.text), l.line ? ` (${place(l)})` : ""))));
    }
    out.push(timeline(d));
    if (d.collateral && d.collateral.length) {
      out.push(element("details", {}, element("summary", {}, `Collateral: ${d.collateral.length} ${d.collateral.length === 1 ? "kind" : "kinds"} of follow-up lines`),
        element("ul", {}, d.collateral.slice(0, 12).map((c) => element("li", {}, `${words(c.what)} × ${c.count}`)))));
    }
    if (d.not_examined && d.not_examined.length) out.push(element("p", { class: "fb-paste__note" }, `Not examined: ${d.not_examined.join("; ")}`));
    return out.filter(Boolean);
  }

  // A share link: the masked result, packed into the fragment, which no server gets to see.
  const through = (stream, bytes) => new Response(new Blob([bytes]).stream().pipeThrough(stream));
  async function pack(d) {
    const bytes = new Uint8Array(await through(new CompressionStream("deflate-raw"), new TextEncoder().encode(JSON.stringify(d))).arrayBuffer());
    let binary = "";
    for (const byte of bytes) binary += String.fromCharCode(byte);
    return btoa(binary).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  }
  async function unpack(code) {
    const bytes = Uint8Array.from(atob(code.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
    const d = JSON.parse(await through(new DecompressionStream("deflate-raw"), bytes).text());
    if (d.schema !== "faultbook.diagnosis/1" || !Array.isArray(d.diagnoses)) throw new Error("not a diagnosis");
    return d;
  }

  Object.assign((window.faultbook = window.faultbook || {}), { element, button, show, pack, unpack });
})();
