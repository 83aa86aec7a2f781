// A complete reader of log signatures for one log, in plain JavaScript. Grammar: docs/signature-language.md.
//   node reader.mjs cases.json    → [{"name", "holds": [{"signature", "rank", "lines"}]}] on standard output
import { readFileSync } from "node:fs";
const MOST_STARTS = 60;
const latin1 = (text) => Buffer.from(text, "utf8").toString("latin1"); // patterns are matched on bytes
const utf8 = (text) => Buffer.from(text, "latin1").toString("utf8");

function compile({ pattern, ignore_case }) {
  let inClass = false;
  const source = pattern.match(/\\x[0-9A-Fa-f]{2}|\\.|\(\?P<|\[\^?|[^]/g).map((token) => {
    if (token === "\\s") return inClass ? "\\t-\\r " : "[\\t-\\r ]"; // not JavaScript's \s: that knows more spaces
    inClass = token[0] === "[" || (inClass && token !== "]");
    return token === "\\S" ? "[^\\t-\\r ]" : token === "(?P<" && !inClass ? "(?<" : token;
  });
  return new RegExp(source.join(""), ignore_case ? "iu" : "u");
}
const compiled = new Map();
function search(pattern, text) {
  if (!compiled.has(pattern)) compiled.set(pattern, compile(pattern));
  return compiled.get(pattern).exec(text);
}
function matching(pattern, log) {
  const words = (pattern.literals ?? []).map((word) => word.toLowerCase()); // a cheap gate: one of them is in every match
  return log.filter(({ text, folded }) => (!words.length || words.some((w) => folded.includes(w))) && search(pattern, text));
}

const [K, M, G, T] = [10, 20, 30, 40].map((bits) => 2 ** bits), UNITS = {
  bytes: { "": 1, b: 1, bytes: 1, kb: 1e3, mb: 1e6, gb: 1e9, tb: 1e12, k: K, m: M, g: G, t: T, kib: K, mib: M, gib: G, tib: T },
  seconds: {hours: 3600, h: 3600, "": 1, s: 1, sec: 1, seconds: 1, ms: 1e-3, milliseconds: 1e-3, us: 1e-6, m: 60, min: 60, minutes: 60},
};
function quantity(text, type) {
  const found = /^[\t-\r ]*([-+]?[0-9][0-9,]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?)[\t-\r ]*([A-Za-z]*)/.exec(text);
  if (!found) return null;
  const factor = type === "number" ? 1 : UNITS[type][found[2].toLowerCase()];
  return factor === undefined ? null : Number(found[1].replaceAll(",", "")) * factor;
}
function compare({ left, op, right, factor = 1, type = "number" }, captures) {
  const a = captures.get(left);
  const b = typeof right === "string" ? (captures.get(right) ?? right) : right;
  if (a === undefined) return false;
  if (type === "text") return op === "==" ? a === String(b) : op === "!=" && a !== String(b);
  const x = quantity(a, type), y = typeof b === "string" ? quantity(b, type) : b, z = y * factor;
  return x !== null && y !== null && { "<": x < z, "<=": x <= z, ">": x > z, ">=": x >= z, "==": x === z, "!=": x !== z }[op];
}

/** The lines that show the signature among those one rank can see (its own, and those that name no rank), or null. */
function inGroup(signature, lines, rank) {
  const seen = (pattern) => lines.get(pattern).filter((line) => line.rank === null || line.rank === rank);
  const { all = [], any = [], none = [], ordered, within, where = [] } = signature, count = (pattern) => pattern.at_least ?? 1;
  if (within?.seconds != null || none.some((p) => seen(p).length)) return null; // no clock is read here
  const required = all.map(seen), optional = any.filter((p) => seen(p).length >= count(p));
  if (all.some((p, n) => required[n].length < count(p)) || (any.length && !optional.length)) return null;
  const steps = all.map((p, n) => ({ patterns: [p], lines: required[n] }));
  if (optional.length) steps.push({ patterns: optional, lines: optional.flatMap(seen) });
  for (const start of steps[0].lines.slice(0, MOST_STARTS)) {
    const chain = [start], far = (line) => Math.abs(line.number - start.number);
    for (const step of steps.slice(1)) {
      const near = step.lines.filter((line) => within?.lines == null || far(line) <= within.lines);
      const here = near.filter((line) => !ordered || line.number >= chain.at(-1).number);
      if (here.length) chain.push(here.reduce((a, b) => (far(a) <= far(b) ? a : b)));
    }
    if (chain.length < steps.length) continue;
    const found = chain.map((line, n) => steps[n].patterns.map((p) => search(p, line.text)).find(Boolean));
    const groups = found.flatMap((match) => Object.entries(match.groups ?? {}));
    const captures = new Map(groups.filter(([, value]) => value !== undefined).map(([name, value]) => [name, utf8(value)]));
    if (!where.every((comparison) => compare(comparison, captures))) continue;
    return [...new Set([...chain, ...all.flatMap((p, n) => (count(p) > 1 ? [required[n].at(-1)] : []))])];
  }
  return null;
}
function quantified(ranks, found, everyone) {
  if (!ranks) return true;
  const named = new Set(found.map((match) => match.rank).filter((rank) => rank !== null));
  if (ranks.quantifier === "exactly_one") return named.size === 1 || (!named.size && found.length === 1);
  if (ranks.quantifier === "at_least") return named.size >= (ranks.count || 1);
  return ranks.quantifier === "all" && named.size > 0 && everyone.every((rank) => named.has(rank)); // one log knows no hosts
}
export function evaluate(signature, log) {
  const patterns = [...(signature.all ?? []), ...(signature.any ?? []), ...(signature.none ?? [])];
  const lines = new Map(patterns.map((pattern) => [pattern, matching(pattern, log)]));
  const everyone = [...new Set(log.map((line) => line.rank))].filter((rank) => rank !== null).sort((a, b) => a - b);
  const found = [null, ...everyone].flatMap((rank) => {
    const evidence = inGroup(signature, lines, rank);
    return evidence?.some((line) => line.rank === rank) ? [{ rank, lines: evidence.map((line) => line.number) }] : [];
  });
  return quantified(signature.ranks, found, everyone) ? found : [];
}

if (process.argv[2]) {
  const { signatures, cases } = JSON.parse(readFileSync(process.argv[2], "utf8"));
  console.log(JSON.stringify(cases.map(({ name, lines }) => {
    const log = lines.map((line, n) => {
      const text = latin1(line), rank = /^\[rank([0-9]+)\]:/.exec(line);
      return { number: n + 1, text, folded: text.toLowerCase(), rank: rank && Number(rank[1]) };
    });
    const holds = ([signature, given]) => evaluate(given, log).map((match) => ({ signature, ...match }));
    return { name, holds: Object.entries(signatures).flatMap(holds) };
  })));
}
