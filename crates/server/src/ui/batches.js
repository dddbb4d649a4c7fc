// Batches: commands that were sent together, and how far they are.

import { age, fill, h, json, link, numbers, refill, state, table } from "./dom.js";
import { get, part, query } from "./api.js";
import { live, looking, pages } from "./live.js";

export async function batches(page, here) {
  const { namespace, rest, asked, current } = here;
  const base = part(namespace);
  const list = h("div", {});
  const at = (run) => `#/${base}/batches/${part(run)}`;
  const far = ({ ended, commands }) => h("td", {},
    h("progress", { max: Math.max(1, commands), value: ended }),
    h("span", { class: "dim" }, ` ${ended.toLocaleString()} of ${commands.toLocaleString()}`));
  const count = (number, style) =>
    h("td", { class: `number ${number ? style : "dim"}` }, number.toLocaleString());
  const rows = (items) => table(["batch", "state", "ended", numbers("failed"), numbers("parked"),
    "age"], items.map((batch) => h("tr", {},
    h("td", {}, link(at(batch.run), batch.key ?? batch.run)), h("td", {}, state(batch.state)),
    far(batch), count(batch.failed, "bad"), count(batch.parked, "look"),
    h("td", { class: "tight" }, age(batch.created_at)))));
  const members = (items) => table(["run", "queue", "id", "state", "came to"],
    items.map((one) => h("tr", {},
      h("td", { class: "mono tight" }, link(`#/${base}/run/${part(one.run)}`, one.run)),
      h("td", {}, one.queue), h("td", {}, one.key), h("td", {}, state(one.state)),
      h("td", { class: "mono" }, one.outcome?.failure?.message ?? json(one.outcome?.value, 200)))));
  if (rest[0]) {
    const refresh = async () => {
      const paged = query({ cursor: asked.cursor });
      const found = await get(`${base}/batches/${part(rest[0])}${paged}`);
      if (!current()) return;
      refill(list, rows([found.batch]), h("h2", {}, "Its commands"), members(found.members),
        pages(here, found.next));
    };
    fill(page, h("h1", {}, link(`#/${base}/batches`, "Batches"), ` / ${rest[0]}`), list);
    return live(here, refresh);
  }
  const ask = (at) => get(`${base}/batches${query(at)}`);
  const { note, look } = looking(here, ask, ({ items, next }, on) => {
    refill(list, items.length > 0 ? rows(items)
      : !on && h("p", { class: "dim" }, "There are no batches."), !on && pages(here, next));
  });
  fill(page, h("h1", {}, "Batches"), list, note);
  return live(here, () => look(asked.cursor));
}
