// Runs, newest first, filtered; the filters are in the address.

import { age, fill, h, input, link, refill, state, table } from "./dom.js";
import { get, part, query } from "./api.js";
import { live, looking, pages } from "./live.js";
import { states } from "./states.js";

const STATES = ["ready", "running", "waiting", "rolling_back", "parked", "completed", "failed",
  "rolled_back", "rollback_failed", "cancelled"];

const labels = (all) => Object.entries(all).map(([name, value]) => `${name}=${value}`).join(" ");

export async function runs(page, here) {
  const { namespace, asked, go, current } = here;
  const base = part(namespace);
  const { workflow = "", label = "", state: word = "", cursor = "" } = asked;
  const list = h("div", {});
  const form = h("form", { class: "filter", onsubmit: (event) => {
    event.preventDefault();
    go(namespace, "runs", Object.fromEntries(new FormData(form)));
  } },
  input("workflow", "workflow", workflow), input("label", "label, as name=value", label),
  h("select", { name: "state", "aria-label": "state", onchange: () => form.requestSubmit() },
    h("option", { value: "" }, "any state"),
    STATES.map((name) => h("option", { value: name, selected: name === word },
      name.replaceAll("_", " ")))),
  h("button", {}, "Filter"));
  const row = (run) => h("tr", {},
    h("td", { class: "mono tight" }, link(`#/${base}/run/${part(run.run)}`, run.run)),
    h("td", { class: "tight" }, state(run.state)),
    h("td", {}, run.workflow, run.version === 1 ? "" : ` v${run.version}`),
    h("td", { class: "tight" }, age(run.created_at)),
    h("td", {}, run.key), h("td", { class: "dim" }, labels(run.labels)));
  const ask = (at) => get(`${base}/runs${query({ workflow, label, state: word, ...at })}`);
  const { note, look } = looking(here, ask, ({ items, next }, on) => {
    refill(list, items.length > 0
      ? table(["run", "state", "workflow", "age", "key", "labels"], items.map(row))
      : !on && h("p", { class: "dim" }, "No runs like that."), !on && pages(here, next));
  });
  // The list does not wait for its counts, which may take longer where there is a lot.
  const counts = h("div", {});
  const count = async () => {
    const found = await states(here, STATES).catch(() => false);
    if (current()) refill(counts, found);
  };
  fill(page, h("h1", {}, "Runs"), form, counts, list, note);
  return live(here, () => {
    count();
    return look(cursor);
  });
}
