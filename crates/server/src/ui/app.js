// The pages by their addresses: #/NAMESPACE/PAGE?FILTERS. What is filtered by stays in the address.

import { fill, h, table } from "./dom.js";
import { del, get } from "./api.js";
import { audit } from "./audit.js";
import { batches } from "./batches.js";
import { facts } from "./facts.js";
import { overview } from "./overview.js";
import { parked } from "./parked.js";
import { queues } from "./queues.js";
import { run } from "./run.js";
import { runs } from "./runs.js";
import { schedules } from "./schedules.js";
import { sql } from "./sql.js";
import { topics } from "./topics.js";
import { workers } from "./workers.js";

// What is in the menu: page, name, key.
const MENU = [
  [overview, "Overview", "o"], [runs, "Runs", "r"], [parked, "Parked", "p"],
  [queues, "Queues", "q"], [topics, "Topics", "t"], [schedules, "Schedules", "s"],
  [batches, "Batches", "b"], [facts, "Facts", "f"], [workers, "Workers", "w"],
  [audit, "Audit", "a"], [sql, "SQL", "x"],
];
// Pages for some only, and what those may do.
const ONLY = new Map([[audit, "see the audit"], [sql, "ask in SQL"]]);
const PAGES = Object.fromEntries([...MENU.map(([draw]) => [draw.name, draw]), ["run", run]]);
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
  const links = MENU.filter(([draw]) => !ONLY.has(draw) || me.may.includes(ONLY.get(draw)));
  const out = async () => {
    await del("session").catch(() => {});
    location.assign("../login");
  };
  fill(top, h("strong", {}, "Roundel"),
    h("nav", { "aria-label": "Pages" }, links.map(([draw, text]) => h("a", {
      href: `#/${encodeURIComponent(namespace)}/${draw.name}`,
      "aria-current": draw.name === (name === "run" ? "runs" : name) && "page",
    }, text))),
    h("span", { class: "dim" }, `${namespace} · ${me.name} (${me.role})`),
    h("button", { class: "small", title: "Keys (?)", "aria-label": "Keys", onclick: keys }, "?"),
    h("button", { class: "small", onclick: out }, "Log out"));
}

function keys() {
  const row = (key, what) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, what));
  const dialog = h("dialog", { onclose: () => dialog.remove() }, h("h2", {}, "Keys"),
    table(["key", "leads to"], [...MENU.map(([, text, key]) => row(key, text)),
      row("j, k", "the next row, the one before; Enter opens it"), row("/", "the filter"),
      row("?", "this")]),
    h("form", { method: "dialog", class: "actions" }, h("button", {}, "Close")));
  document.body.append(dialog);
  dialog.showModal();
}

// To the first link or button of the next row, or of the one before.
function step(by) {
  const rows = [...page.querySelectorAll("tbody tr")].filter((row) => row.querySelector("a, button"));
  const at = rows.indexOf(document.activeElement?.closest?.("tr"));
  const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by];
  next?.querySelector("a, button").focus();
}

async function show() {
  const at = address();
  const mine = ++turn;
  leave();
  leave = () => {};
  menu(at);
  const draw = PAGES[at.name] ?? overview;
  document.title = `Roundel: ${[at.name, ...at.rest].join(" ")}`;
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
addEventListener("hashchange", async () => {
  await show();
  page.focus({ preventScroll: true });
  scrollTo(0, 0);
});
addEventListener("keydown", (event) => {
  if (event.target.closest?.("input, textarea, select, dialog") || event.ctrlKey || event.metaKey
    || event.altKey) {
    return;
  }
  const found = MENU.find(([, , key]) => key === event.key);
  if (found) go(address().namespace, found[0].name);
  else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "?") keys();
  else if (event.key === "/") {
    const filter = page.querySelector("form.filter input");
    if (filter) event.preventDefault();
    filter?.focus();
  }
});
await show();
