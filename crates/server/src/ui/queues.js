// Queues: what waits, what is in hand, and limits that are changed while work goes on. Whatever can
// be run can be limited: commands by their queue, runs by their workflow.

import { age, fill, h, json, link, numbers, refill, span, state, table } from "./dom.js";
import { get, part, post, put, query } from "./api.js";
import { doing, live, looking, pages } from "./live.js";

const any = (limit) => limit ?? "any";

export async function queues(page, here) {
  const { namespace, rest, me, current } = here;
  if (rest[0]) return commands(page, here);
  const base = part(namespace);
  const may = me.may.includes("operate");
  const list = h("div", {});
  const refresh = async () => {
    const [known, counts] = await Promise.all([get(`${base}/queues`), get(`${base}/counts`)]);
    if (current()) refill(list, draw(known.items, counts.runs));
  };
  const { problem, act, ask } = doing(refresh);
  const at = (queue) => `${base}/queues/${part(queue)}`;
  const pause = (queue) => ask(`Begin nothing of ${queue} any more?`, "Pause it",
    (said) => post(`${at(queue)}/pause`, said));
  const resume = (queue) => act(() => post(`${at(queue)}/resume`, {}));
  const limit = (queue, limits) => ask(`Limits of ${queue}`, "Set them", (said) => {
    const number = (text) => text.trim() === "" ? "none" : Number(text);
    const asked = { concurrency: number(said.concurrency), per_key: number(said.per_key),
      rate: number(said.rate), reason: said.reason };
    if (asked.rate !== "none") asked.rate_ms = Math.round(1000 * Number(said.seconds));
    return put(at(queue), asked);
  }, [
    { name: "concurrency", label: "In hand at once (empty: as many as there are workers for)",
      value: limits?.concurrency ?? "" },
    { name: "per_key", label: "With the same flow key (empty: any)", value: limits?.per_key ?? "" },
    { name: "rate", label: "Begun in that many seconds (empty: as fast as they come)",
      value: limits?.rate?.count ?? "" },
    { name: "seconds", label: "Seconds", value: (limits?.rate?.per_ms ?? 1000) / 1000 },
  ]);
  const actions = (name, limits) => h("td", {}, may && h("div", { class: "actions" },
    limits?.paused ? h("button", { onclick: () => resume(name) }, "Resume")
      : h("button", { onclick: () => pause(name) }, "Pause …"),
    h("button", { onclick: () => limit(name, limits) }, "Limits …")));
  const draw = (known, runs) => {
    const by = new Map();
    for (const { workflow, state: word, count } of runs) {
      const seen = by.get(workflow) ?? { ready: 0, running: 0 };
      if (word in seen) seen[word] += count;
      by.set(workflow, seen);
    }
    const names = new Set(known.map((queue) => queue.queue));
    const count = (name, word) => {
      const found = by.get(name)?.[word] ?? 0;
      return h("td", { class: `number ${found ? "" : "dim"}` }, found.toLocaleString());
    };
    const name = (queue) =>
      h("td", {}, link(`#/${base}/queues/${part(queue)}`, queue));
    const rate = (said) => said ? `${said.count} in ${span(said.per_ms * 1000)}` : "any";
    const keys = (queue) => Object.entries(queue.in_hand_by_key)
      .slice(0, 20).map(([key, held]) => `${key}: ${held}`).join(", ");
    // What is the engine's own is not limited by hand.
    const own = (other) => other.startsWith("roundel.");
    const others = [...by.keys()].filter((other) => !names.has(other) && !own(other)).sort();
    return [h("h2", {}, "With limits"),
      known.length === 0 ? h("p", { class: "dim" }, "No queue has limits.")
        : table(["queue", "", numbers("ready"), numbers("in hand"), numbers("at once"),
          numbers("per key"), numbers("rate"), "changed", ""], known.map((queue) => h("tr", {},
          name(queue.queue),
          h("td", { class: queue.paused ? "look" : "good" }, queue.paused ? "paused" : "on"),
          count(queue.queue, "ready"),
          h("td", { class: "number", title: keys(queue) }, queue.in_hand),
          h("td", { class: "number" }, any(queue.concurrency)),
          h("td", { class: "number" }, any(queue.per_key)),
          h("td", { class: "number" }, rate(queue.rate)),
          h("td", { class: "tight" }, age(queue.changed_at), " ago"),
          actions(queue.queue, queue)))),
      h("h2", {}, "Without limits"),
      others.length === 0 ? h("p", { class: "dim" }, "Nothing else has run yet.")
        : table(["queue or workflow", numbers("ready"), numbers("in hand"), ""],
          others.map((other) => h("tr", {}, name(other), count(other, "ready"),
            count(other, "running"), actions(other, null))))];
  };
  fill(page, h("h1", {}, "Queues"), problem, list);
  return live(here, refresh);
}

// What is in one of them, newest first.
async function commands(page, here) {
  const { namespace, rest, asked } = here;
  const [base, queue] = [part(namespace), rest[0]];
  const list = h("div", {});
  const path = `${base}/commands/${part(queue)}`;
  const ask = (at) => get(`${path}${query({ state: asked.state, ...at })}`);
  const { note, look } = looking(here, ask, ({ items, next }, on) => {
    refill(list, items.length === 0
      ? !on && h("p", { class: "dim" }, "Nothing was sent to it.")
      : table(["run", "state", "id", "payload", "came to", "age"],
        items.map((sent) => h("tr", {},
          h("td", { class: "mono tight" }, link(`#/${base}/run/${part(sent.run)}`, sent.run)),
          h("td", { class: "tight" }, state(sent.state)), h("td", {}, sent.id),
          h("td", { class: "mono" }, json(sent.payload, 200)),
          h("td", { class: "mono" },
            sent.outcome?.failure?.message ?? json(sent.outcome?.value, 200)),
          h("td", { class: "tight" }, age(sent.created_at))))),
    !on && pages(here, next));
  });
  fill(page, h("h1", {}, link(`#/${base}/queues`, "Queues"), ` / ${queue}`), list, note);
  return live(here, () => look(asked.cursor));
}
