// How many runs there are, by state and by workflow, live; and who works.

import { age, fill, h, numbers, state, table } from "./dom.js";
import { get, part, watch } from "./api.js";

export async function overview(page, { namespace }) {
  const base = part(namespace);
  const workers = await get(`${base}/workers`);
  const [states, flows] = [h("div", { class: "cards" }), h("div", {})];
  fill(page, h("h1", {}, "Overview"), states, h("h2", {}, "Workflows"), flows,
    h("h2", {}, "Workers"),
    workers.items.length === 0
      ? h("p", { class: "note" }, "No worker is registered: what is due waits for one.")
      : table(["worker", "last seen", "started", "runs versions"], workers.items.map((worker) =>
        h("tr", {}, h("td", {}, worker.name), h("td", {}, age(worker.seen_at), " ago"),
          h("td", {}, age(worker.started_at), " ago"), h("td", {}, worker.lanes)))));
  const draw = (counts) => {
    const total = new Map();
    const rows = new Map();
    for (const { workflow, version, state: word, count } of counts.runs) {
      total.set(word, (total.get(word) ?? 0) + count);
      const name = `${workflow}\n${version}`;
      if (!rows.has(name)) rows.set(name, { workflow, version, by: new Map() });
      rows.get(name).by.set(word, count);
    }
    const words = [...total.keys()].sort();
    fill(states, words.map((word) => h("a", {
      class: "card", href: `#/${base}/runs?state=${word}`,
    }, state(word), h("b", {}, total.get(word).toLocaleString()))),
    words.length === 0 && h("p", { class: "dim" }, "No runs yet."));
    const counted = words.map((word) => numbers(word.replaceAll("_", " ")));
    fill(flows, table(["workflow", "version", ...counted],
      [...rows.values()].map(({ workflow, version, by }) => h("tr", {},
        h("td", {}, h("a", { href: `#/${base}/runs?workflow=${part(workflow)}` }, workflow)),
        h("td", {}, version),
        words.map((word) => h("td", { class: "number" }, by.get(word)?.toLocaleString() ?? ""))))));
  };
  draw(await get(`${base}/counts`));
  return watch(`${base}/events`, "counts", draw);
}
