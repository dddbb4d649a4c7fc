// Runs, newest first, filtered; the filters are in the address.

import { age, fill, h, state, table } from "./dom.js";
import { get, part, query } from "./api.js";

const STATES = ["ready", "running", "waiting", "rolling_back", "parked", "completed", "failed",
  "rolled_back", "rollback_failed", "cancelled"];

export async function runs(page, { namespace, asked, go, current }) {
  const base = part(namespace);
  const { workflow = "", label = "", state: word = "", cursor = "" } = asked;
  const list = await get(`${base}/runs${query({ workflow, label, state: word, cursor, limit: 50 })}`);
  if (!current()) return undefined;
  const form = h("form", { class: "filter", onsubmit: (event) => {
    event.preventDefault();
    go(namespace, "runs", Object.fromEntries(new FormData(form)));
  } },
  field("workflow", "workflow", workflow), field("label", "label, as name=value", label),
  h("select", { name: "state", "aria-label": "state" }, h("option", { value: "" }, "any state"),
    STATES.map((name) => h("option", { value: name, selected: name === word },
      name.replaceAll("_", " ")))),
  h("button", {}, "Filter"));
  fill(page, h("h1", {}, "Runs"), form,
    list.items.length === 0 ? h("p", { class: "dim" }, "No runs like that.")
      : table(["run", "state", "workflow", "age", "key", "labels"], list.items.map((run) =>
        h("tr", {},
          h("td", { class: "mono tight" },
            h("a", { href: `#/${base}/run/${part(run.run)}` }, run.run)),
          h("td", { class: "tight" }, state(run.state)),
          h("td", {}, run.workflow, run.version === 1 ? "" : ` v${run.version}`),
          h("td", { class: "tight" }, age(run.created_at)),
          h("td", {}, run.key), h("td", { class: "dim" }, labels(run.labels))))),
    list.next && h("p", {}, h("button", {
      onclick: () => go(namespace, "runs", { ...asked, cursor: list.next }),
    }, "Older")));
  return undefined;
}

const labels = (all) => Object.entries(all).map(([name, value]) => `${name}=${value}`).join(" ");
const field = (name, hint, value) =>
  h("input", { name, placeholder: hint, "aria-label": hint, value });
