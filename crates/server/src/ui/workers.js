// Workers: who is there, what they can run, and how much they have in hand.

import { age, fill, h, link, numbers, refill, table } from "./dom.js";
import { get, part } from "./api.js";
import { live } from "./live.js";

export async function workers(page, here) {
  const { namespace, current } = here;
  const base = part(namespace);
  const list = h("div", {});
  const version = ({ workflow, version: number }) =>
    h("li", {}, workflow, h("span", { class: "dim" }, ` v${number}`));
  const row = (worker) => h("tr", {},
    h("td", {}, worker.name, h("div", { class: "mono dim" }, worker.id)),
    h("td", { class: "tight" }, age(worker.started_at), " ago"),
    h("td", { class: "tight" }, age(worker.seen_at), " ago"),
    h("td", { class: "number" }, worker.leases.toLocaleString()),
    h("td", {}, worker.can_run.length === 0
      ? h("span", { class: "dim" }, "nothing of this namespace")
      : h("ul", { class: "plain wide" }, worker.can_run.map(version))),
    h("td", {}, worker.suspect && link(`#/${base}/run/${part(worker.suspect)}`, "on trial")));
  const refresh = async () => {
    const found = await get(`${base}/workers`);
    if (!current()) return;
    refill(list, found.items.length === 0
      ? h("p", { class: "note" }, "No worker is registered: what is due waits for one.")
      : table(["worker", "started", "last renewed", numbers("leases"), "can run", "suspect"],
        found.items.sort((one, other) => other.seen_at - one.seen_at).map(row)));
  };
  fill(page, h("h1", {}, "Workers"), list);
  return live(here, refresh);
}
