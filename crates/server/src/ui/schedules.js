// Schedules: when, in words; the next times; what they did last; pause, resume, run now.

import { cut, fill, h, json, link, numbers, refill, table, until } from "./dom.js";
import { get, part, post, query } from "./api.js";
import { doing, live, pages } from "./live.js";

const STYLES = { on: "good", paused: "look", parked: "look", over: "dim", ended: "dim" };

export async function schedules(page, here) {
  const { namespace, asked, me, current } = here;
  const base = part(namespace);
  const may = me.may.includes("operate");
  const list = h("div", {});
  const refresh = async () => {
    const found = await get(`${base}/schedules${query({ cursor: asked.cursor })}`);
    if (current()) refill(list, draw(found));
  };
  const { problem, act, ask } = doing(refresh);
  const to = (name, verb) => `${base}/schedules/${part(name)}/${verb}`;
  const buttons = ({ name, state }) => h("div", { class: "actions" },
    state === "paused" && h("button", { onclick: () => act(() => post(to(name, "resume"), {})) },
      "Resume"),
    state === "on" && h("button", { onclick: () => ask(`Pause ${name}?`, "Pause it",
      (said) => post(to(name, "pause"), said)) }, "Pause …"),
    ["on", "paused"].includes(state) && h("button", { onclick: () => ask(`Run ${name} now?`,
      "Run it now", (said) => post(to(name, "run"), said)) }, "Run now …"));
  const did = ({ at, what, run }) => h("li", {},
    h("time", { datetime: at, title: at }, new Date(at).toLocaleString()), ` ${what} `,
    run && link(`#/${base}/run/${part(run)}`, "run"));
  const row = (one) => h("tr", {},
    h("td", {}, link(`#/${base}/run/${part(one.run)}`, one.name),
      h("div", { class: STYLES[one.state] ?? "" }, one.state)),
    h("td", { title: json(one.calendar, 300) }, one.words,
      h("div", { class: "dim" }, one.command ? `sends ${one.command}` : `starts ${one.workflow}`,
        h("span", { class: "mono" }, ` ${cut(one.input === null ? "" : json(one.input, 80), 90)}`))),
    h("td", { class: "tight" }, one.state === "on"
      ? h("ul", { class: "plain" }, one.times.map((at) => h("li", {}, until(at))))
      : h("span", { class: "dim" }, "none")),
    h("td", { class: "number" }, one.started.toLocaleString()),
    h("td", { class: `number ${one.skipped ? "look" : "dim"}` }, one.skipped.toLocaleString()),
    h("td", { class: `number ${one.missed ? "look" : "dim"}` }, one.missed.toLocaleString()),
    h("td", {}, h("ul", { class: "plain" }, one.recent.slice(-3).reverse().map(did))),
    h("td", {}, may && buttons(one)));
  const draw = (found) => [found.items.length === 0
    ? h("p", { class: "dim" }, "There are no schedules.")
    : table(["schedule", "when", "next", numbers("started"), numbers("skipped"),
      numbers("missed"), "last", ""], found.items.map(row)), pages(here, found.next)];
  fill(page, h("h1", {}, "Schedules"), problem, list);
  return live(here, refresh);
}
