// The audit: what was done in whose name, newest first.

import { age, fill, h, input, json, link, numbers, refill, table } from "./dom.js";
import { get, part, query } from "./api.js";
import { live, looking, pages } from "./live.js";

export async function audit(page, here) {
  const { namespace, asked, go } = here;
  const base = part(namespace);
  const list = h("div", {});
  const row = (one) => h("tr", {},
    h("td", { class: "number dim", title: `sealed ${one.seal}` }, one.number),
    h("td", { class: "tight" }, age(one.at), " ago"), h("td", {}, one.operator),
    h("td", {}, one.action),
    h("td", {}, one.run ? link(`#/${base}/run/${part(one.run)}`, one.target) : one.target),
    h("td", {}, one.reason), h("td", { class: "mono dim" }, json(one.detail, 200)),
    h("td", {}, one.answer));
  const { by, run } = asked;
  const ask = (at) => get(`${base}/audit${query({ by, run, newest_first: true, ...at })}`);
  const { note, look } = looking(here, ask, ({ items, next }, on) => {
    refill(list, items.length > 0
      ? table([numbers("#"), "when", "who", "what", "to", "why", "with", "came to"],
        items.map(row))
      : !on && h("p", { class: "dim" }, "Nothing was done like that."), !on && pages(here, next));
  });
  const form = h("form", { class: "filter", onsubmit: (event) => {
    event.preventDefault();
    go(namespace, "audit", Object.fromEntries(new FormData(form)));
  } }, input("by", "who", asked.by), input("run", "run, by its id or key", asked.run),
  h("button", {}, "Filter"));
  fill(page, h("h1", {}, "Audit"), form, list, note);
  return live(here, () => look(asked.cursor));
}
