// How many runs there are, by state and by workflow, with how that changed lately; and who works.

import { fill, h, link, numbers, refill, spark, state, table } from "./dom.js";
import { get, part, watch } from "./api.js";

// Two minutes, a look a second.
const KEPT = 120;
const ENDED = ["completed", "failed", "rolled_back", "rollback_failed", "cancelled"];

// How many ended in each second that was looked at, by state: kept while pages come and go.
const seen = new Map();
let last = null;

function note(namespace, total) {
  const now = Date.now() / 1000;
  if (last?.namespace !== namespace) seen.clear();
  else if (now - last.at >= 0.5) {
    for (const word of total.keys()) {
      const line = seen.get(word) ?? [];
      const more = total.get(word) - (last.total.get(word) ?? 0);
      line.push(ENDED.includes(word) ? Math.max(0, more) / (now - last.at) : total.get(word));
      if (line.length > KEPT) line.shift();
      seen.set(word, line);
    }
  } else return;
  last = { namespace, at: now, total };
}

function card(word, count, base) {
  const line = seen.get(word) ?? [];
  const few = line.slice(-10);
  const rate = few.reduce((sum, one) => sum + one, 0) / Math.max(1, few.length);
  const told = rate >= 10 ? Math.round(rate) : rate.toFixed(1);
  return h("a", { class: "card", href: `#/${base}/runs?state=${word}` }, state(word),
    h("b", {}, count.toLocaleString()), spark(line.length > 1 ? line : [0, 0]),
    h("span", { class: "dim rate" }, ENDED.includes(word) && rate > 0.05 && `${told} /s`));
}

export async function overview(page, { namespace, current }) {
  const base = part(namespace);
  const [states, flows] = [h("div", { class: "cards" }), h("div", {})];
  const crew = h("p", {});
  fill(page, h("h1", {}, "Overview"), states, crew, h("h2", {}, "Workflows"), flows);
  let counts = null;
  const draw = () => {
    const total = new Map();
    const rows = new Map();
    for (const { workflow, version, state: word, count } of counts.runs) {
      total.set(word, (total.get(word) ?? 0) + count);
      const name = `${workflow}\n${version}`;
      if (!rows.has(name)) rows.set(name, { workflow, version, by: new Map() });
      rows.get(name).by.set(word, count);
    }
    note(namespace, total);
    const words = [...total.keys()].sort();
    refill(states, words.map((word) => card(word, total.get(word), base)),
      words.length === 0 && h("p", { class: "dim" }, "No runs yet."));
    const counted = words.map((word) => numbers(word.replaceAll("_", " ")));
    const cell = (workflow, word, count) => h("td", { class: "number" }, count && link(
      `#/${base}/runs?workflow=${part(workflow)}&state=${word}`, count.toLocaleString()));
    refill(flows, table(["workflow", "version", ...counted],
      [...rows.values()].map(({ workflow, version, by }) => h("tr", {},
        h("td", {}, link(`#/${base}/runs?workflow=${part(workflow)}`, workflow)),
        h("td", {}, version), words.map((word) => cell(workflow, word, by.get(word)))))));
  };
  const [first, workers] = await Promise.all([get(`${base}/counts`), get(`${base}/workers`)]);
  if (!current()) return undefined;
  counts = first;
  const many = workers.items.length;
  fill(crew, many === 0
    ? h("span", { class: "look" }, "No worker is registered: what is due waits for one.")
    : [link(`#/${base}/workers`, many === 1 ? "1 worker" : `${many} workers`), " registered"]);
  draw();
  const stop = watch(`${base}/events`, "counts", (told) => { counts = told; });
  const timer = setInterval(() => { if (!document.hidden) draw(); }, 1000);
  return () => {
    stop();
    clearInterval(timer);
  };
}
