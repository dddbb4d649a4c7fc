// Facts, in order, and the documents that they came to.

import { age, fill, h, input, json, link, numbers, refill, table } from "./dom.js";
import { get, part, query } from "./api.js";
import { live, looking, pages } from "./live.js";

export async function facts(page, here) {
  const { namespace, rest, asked, go } = here;
  const base = part(namespace);
  if (rest[0] === "documents") return documents(page, here);
  const list = h("div", {});
  const row = (fact) => h("tr", {},
    h("td", { class: "number dim tight" }, fact.position), h("td", {}, fact.kind),
    h("td", { class: "mono" }, fact.id),
    h("td", {}, fact.stream && `${fact.stream} #${fact.stream_version}`),
    h("td", { class: "mono" }, json(fact.data, 300)),
    h("td", {}, fact.run && link(`#/${base}/run/${part(fact.run)}`, "run")),
    h("td", { class: "tight" }, age(fact.at)));
  const { kind, stream } = asked;
  const ask = (at) => get(`${base}/facts${query({ kind, stream, ...at })}`);
  const { note, look } = looking(here, ask, ({ items, next }, on) => {
    refill(list, items.length > 0
      ? table([numbers("place"), "kind", "id", "stream", "says", "by", "age"], items.map(row))
      : !on && h("p", { class: "dim" }, "No facts like that."), !on && pages(here, next));
  });
  const form = h("form", { class: "filter", onsubmit: (event) => {
    event.preventDefault();
    go(namespace, "facts", Object.fromEntries(new FormData(form)));
  } }, input("kind", "kind", asked.kind), input("stream", "stream", asked.stream),
  h("button", {}, "Filter"), link(`#/${base}/facts/documents`, "Documents"));
  fill(page, h("h1", {}, "Facts"), form, list, note);
  return live(here, () => look(asked.cursor));
}

async function documents(page, here) {
  const { namespace, asked, current, go } = here;
  const base = part(namespace);
  const list = h("div", {});
  const refresh = async () => {
    const { prefix, cursor } = asked;
    const found = await get(`${base}/documents${query({ prefix, cursor })}`);
    if (!current()) return;
    refill(list, found.items.length === 0 ? h("p", { class: "dim" }, "No documents like that.")
      : table(["path", numbers("facts"), "value", "changed"], found.items.map((one) => h("tr", {},
        h("td", { class: "mono" }, one.path), h("td", { class: "number" }, one.version),
        h("td", { class: "mono" }, json(one.value, 500)),
        h("td", { class: "tight" }, age(one.at), " ago")))), pages(here, found.next));
  };
  const form = h("form", { class: "filter", onsubmit: (event) => {
    event.preventDefault();
    go(namespace, "facts/documents", Object.fromEntries(new FormData(form)));
  } }, input("prefix", "path begins with", asked.prefix), h("button", {}, "Filter"));
  fill(page, h("h1", {}, link(`#/${base}/facts`, "Facts"), " / documents"), form, list);
  return live(here, refresh);
}
