// The pages by their addresses: #/NAMESPACE/PAGE?FILTERS. What is filtered by stays in the address.

import { fill, h } from "./dom.js";
import { get } from "./api.js";
import { overview } from "./overview.js";
import { runs } from "./runs.js";
import { run } from "./run.js";
import { parked } from "./parked.js";

const PAGES = { overview, runs, run, parked };
const [top, page] = [document.getElementById("top"), document.getElementById("page")];
let me = null;
let leave = () => {};
let turn = 0;

function address() {
  const [path, filters = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [namespace, name, ...rest] = path.split("/").map(decodeURIComponent);
  const asked = Object.fromEntries(new URLSearchParams(filters));
  return { namespace: namespace || me.home, name: name || "overview", rest, asked };
}

function menu({ namespace, name }) {
  const link = (to, text) => h("a", {
    href: `#/${encodeURIComponent(namespace)}/${to}`, class: to === name && "here",
  }, text);
  fill(top, h("strong", {}, "Roundel"),
    h("nav", { "aria-label": "Pages" }, link("overview", "Overview"), link("runs", "Runs"),
      link("parked", "Parked")),
    h("span", { class: "dim" }, `${namespace} · ${me.name} (${me.role})`));
}

async function show() {
  const at = address();
  const mine = ++turn;
  leave();
  leave = () => {};
  menu(at);
  const draw = PAGES[at.name] ?? overview;
  const here = { ...at, me, current: () => mine === turn, go };
  try {
    const left = await draw(page, here);
    if (!here.current()) left?.();
    else leave = left ?? leave;
  } catch (problem) {
    if (here.current()) fill(page, h("p", { class: "note wrong", role: "alert" }, problem.message));
  }
}

export function go(namespace, name, asked = {}) {
  const filters = new URLSearchParams(Object.entries(asked).filter(([, value]) => value));
  const text = filters.toString();
  location.hash = `#/${encodeURIComponent(namespace)}/${name}${text ? `?${text}` : ""}`;
}

me = await get("me");
addEventListener("hashchange", () => { show().then(() => page.focus({ preventScroll: true })); });
addEventListener("keydown", (event) => {
  if (event.target.closest?.("input, textarea, select, dialog") || event.ctrlKey || event.metaKey) {
    return;
  }
  const to = { o: "overview", r: "runs", p: "parked" }[event.key];
  if (to) go(address().namespace, to);
});
await show();
