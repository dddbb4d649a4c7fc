// How many runs there are in each state, of one workflow or of all: each leads to the list of them,
// and what else is filtered by stays in the address.

import { h, state } from "./dom.js";
import { get, part, query } from "./api.js";

// The states that there are runs in, with their counts. With a label they are not known.
export async function states({ namespace, asked }, order) {
  const { workflow = "", label = "", state: word = "" } = asked;
  if (label !== "") return false;
  const total = new Map();
  for (const { workflow: of, state: its, count } of (await get(`${part(namespace)}/counts`)).runs) {
    if (workflow === "" || of === workflow) total.set(its, (total.get(its) ?? 0) + count);
  }
  const to = (its) => `#/${part(namespace)}/runs${query({ workflow, state: its })}`;
  const all = [...total.values()].reduce((sum, count) => sum + count, 0);
  const one = (its, name, count) => h("li", {}, h("a", {
    href: to(its), "aria-current": its === word && "true",
  }, name), ` ${count.toLocaleString()}`);
  return h("ul", { class: "plain wide states" }, one("", "any", all),
    order.filter((its) => total.has(its)).map((its) => one(its, state(its), total.get(its))));
}
