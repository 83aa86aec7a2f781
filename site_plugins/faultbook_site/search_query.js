// Put before Material's search worker: what is asked is rewritten before it is looked for.
// A few words are left alone. A pasted line loses what its author's machine put in (rank, time, address, path, numbers), the
// marks that the search would read as operators, and its repeats; each word is then looked for as it is, not as a beginning.
// An exit code, signal or Xid is one word of its own (`exitcode: -9` → `rcm9`), as in the rows of search_rows.py.
(() => {
  "use strict";
  const ORDINARY = /^[\p{L}\p{N}_.' -]*$/u;
  const FEW = 4, MOST = 48;
  const CODES = /\b(?:exit ?code|return code|error code|exit status|exited? with(?: code| status)?|status|signal|xid|code)\W{0,12}(-?\d{1,3})\b/gi;

  function words(line) {
    const text = line.replace(/\x1b\[[0-9;?]*[A-Za-z]/g, " ");
    const codes = [...text.matchAll(CODES)].map((m) => "rc" + m[1].replace("-", "m"));
    const found = text
      .replace(/(?:[A-Za-z]:)?(?:[\\/][^\s\\/:'"()\[\],]+)+[\\/]/g, " ")
      .replace(/\b0x[0-9a-f]+|\b\d+(?:[.:,/-]\d+)*/gi, (number, at) => (/[A-Za-z_]/.test(text[at - 1] || " ") ? number : " "))
      .toLowerCase()
      .split(/[^\p{L}\p{N}_.']+|\.(?!\d)|^[.']+|[.']+$/u)
      .map((w) => w.replace(/^[._']+|[._']+$/g, ""))
      .filter((w) => w.length > 1 && w.length < 60 && !/^[\d.]+$/.test(w));
    return [...new Set([...codes, ...found])].slice(0, MOST);
  }

  function rewritten(query) {
    const asked = query.trim();
    if (ORDINARY.test(asked) && asked.split(/\s+/).length <= FEW && !asked.match(CODES) && !/(^|\s)-\d/.test(asked)) return query;
    if (/^"[^"]*"$|(^|\s)[+-]\p{L}/u.test(asked) && asked.length < 60) return query; // a phrase or a word required, as documented
    const kept = words(asked);
    return kept.length ? kept.map((w) => w + (/^rcm?\d+$/.test(w) ? "^3" : "^1")).join(" ") : query;
  }

  addEventListener("message", (event) => {
    if (event.data && event.data.type === 2) event.data.data = rewritten(event.data.data);
  });
})();
