// One run: where it stands and why, its timeline, its tree, its journal, its mail.

import { age, confirm, cut, fill, h, json, numbers, span, state, table, when } from "./dom.js";
import { get, part, post, watch } from "./api.js";

export async function run(page, here) {
  const { namespace, rest, me, current } = here;
  const at = `${part(namespace)}/runs/${part(rest[0])}`;
  const draw = async () => {
    const [seen, tree, why] = await Promise.all(
      [get(at), get(`${at}/tree?limit=200`), get(`${at}/why`)]);
    if (!current()) return;
    fill(page, h("h1", {}, seen.workflow, " ", h("span", { class: "mono dim" }, seen.run)),
      h("p", { class: seen.state === "parked" ? "note" : "dim" }, why.sentence),
      me.may.includes("operate") && actions(at, seen, here, draw), about(seen),
      h("h2", {}, "Timeline"), timeline(seen),
      h("h2", {}, "Tree"), h("div", { class: "tree" },
        h("ul", {}, branch(tree.top, tree.asked, namespace)),
        (tree.left_out > 0 || tree.more) && h("p", { class: "dim" },
          `${tree.left_out} more are not shown`)),
      h("h2", {}, `Journal, ${seen.journal.length} entries`), journal(seen),
      seen.mailbox.length > 0 && [h("h2", {}, "Mailbox"), mailbox(seen)]);
  };
  await draw();
  let first = true;
  return watch(`${at}/events`, "run", () => {
    if (first) first = false;
    else draw();
  });
}

function actions(at, seen, here, draw) {
  const problem = h("p", { class: "note wrong", role: "alert", hidden: true });
  const act = async (path, body) => {
    try {
      await post(`${at}/${path}`, body);
      await draw();
    } catch (error) {
      problem.hidden = false;
      fill(problem, error.message);
    }
  };
  const ended = ["completed", "failed", "rolled_back", "rollback_failed", "cancelled"];
  const reason = { name: "reason", label: "Why, for the audit" };
  const cancel = async () => {
    const said = await confirm("Ask this run, and all below it, to end?", [reason], "Cancel it");
    if (said) await act("cancel", said);
  };
  const undo = async () => {
    const preview = await get(`${at}/undo`);
    const title = `Undo ${preview.undos.length}${preview.more ? "+" : ""} calls, newest first?`;
    const said = await confirm(title, [reason], "Undo them");
    if (said) await act("undo", said);
  };
  return [h("div", { class: "actions" },
    !ended.includes(seen.state) && h("button", { onclick: cancel }, "Cancel …"),
    ["completed", "parked"].includes(seen.state) && h("button", { onclick: undo }, "Undo …"),
    ["parked", "rollback_failed"].includes(seen.state) && h("a", {
      href: `#/${part(here.namespace)}/parked?id=${part(seen.run)}`,
    }, "What can be done about it")), problem];
}

function about(seen) {
  const row = (name, value) => value !== "" && value != null && [h("dt", {}, name), h("dd", {}, value)];
  const outcome = seen.outcome && (seen.outcome.failure?.message ?? json(seen.outcome.value));
  const labels = Object.entries(seen.labels).map(([name, value]) => `${name}=${value}`).join(" ");
  return h("dl", {}, row("state", state(seen.state)), row("key", seen.key),
    row("version", seen.version), row("labels", labels),
    row("started", [when(seen.created_at), " (", age(seen.created_at), " ago)"]),
    row("changed", [when(seen.changed_at), " (", age(seen.changed_at), " ago)"]),
    row("execution", seen.execution > 1 ? seen.execution : null),
    row("own state", json(seen.state_value)), row("outcome", outcome));
}

const WAITS = ["sleep", "wait", "watch", "child", "children", "publish"];

// Calls, from when they began to when they ended.
function calls(seen, end) {
  const calls = new Map();
  for (const { at, text, entry, style } of seen.journal) {
    const [kind, said] = typeof entry === "string" ? [entry, {}] : Object.entries(entry)[0];
    if (said?.call === undefined) continue;
    const name = `${kind === "undone" ? "u" : ""}${said.call}`;
    const call = calls.get(name) ?? { text: text.replace(/ begins.*/, ""), from: at, to: end };
    if (["begun", "worked", "attempted"].includes(kind)) call.kind ??= Object.keys(said.what ?? {})[0];
    if (["done", "did", "settled", "dropped"].includes(kind)) [call.to, call.ended] = [at, true];
    if (style === "bad") call.failed = true;
    calls.set(name, call);
  }
  return [...calls.values()];
}

// Where a time stands on the lane, 0 to 1. Where only waits are open for long, time may be left out.
function scale(all, begin, end, brief) {
  const times = [...new Set([begin, end, ...all.flatMap(({ from, to }) => [from, to])])];
  times.sort((one, other) => one - other);
  const works = all.filter(({ kind, failed }) => failed || !WAITS.includes(kind));
  const places = new Map();
  let [at, idle] = [0, 0];
  times.forEach((time, nth) => {
    const before = times[nth - 1] ?? time;
    const long = time - before > (end - begin) / 20;
    const left = long && !works.some(({ from, to }) => from < time && to > before);
    if (left) idle += time - before;
    at += left && brief ? (end - begin) / 100 : time - before;
    places.set(time, at);
  });
  return { idle, place: (time) => places.get(time) / at };
}

// As long as the page is open, for all runs.
let brief = false;

// Calls as bars.
export function timeline(seen) {
  const begin = seen.journal[0]?.at ?? seen.created_at;
  const end = Math.max(begin + 1, seen.journal.at(-1)?.at ?? begin);
  const all = calls(seen, end).slice(0, 500);
  if (all.length === 0) return h("p", { class: "dim" }, "No calls yet.");
  const box = h("div", {});
  const draw = () => {
    const { idle, place } = scale(all, begin, end, brief);
    const turn = () => {
      brief = !brief;
      draw();
      box.querySelector("button").focus();
    };
    fill(box, idle > 0 && h("button", { class: "small", "aria-pressed": String(brief), onclick: turn },
      `Leave out ${span(idle)} of waiting`), bars(all, end - begin, place));
  };
  draw();
  return box;
}

function bars(all, took, place) {
  const rows = all.map((call) => {
    const kind = call.failed ? "failed" : WAITS.includes(call.kind) ? "waits" : "";
    const bar = h("div", { class: `bar ${kind}`, title: `${span(call.to - call.from)}` });
    bar.style.left = `${100 * place(call.from)}%`;
    bar.style.width = `${100 * Math.max(0, place(call.to) - place(call.from))}%`;
    return h("tr", {}, h("td", {}, cut(call.text, 120)),
      h("td", { class: "lane" }, h("div", { class: "track" }, bar)),
      h("td", { class: "number tight" }, call.ended ? span(call.to - call.from) : "open"));
  });
  const drawn = table(["call", `${span(took)} in all`, numbers("took")], rows);
  drawn.classList.add("bars");
  return drawn;
}

function branch(node, asked, namespace) {
  const back = node.rolled_back_from !== null && h("span", { class: "dim" }, " undone",
    node.rolled_back_why && `: ${cut(node.rolled_back_why, 200)}`);
  return h("li", {},
    node.set_off_by && h("span", { class: "dim" }, `${node.set_off_by} → `),
    h("a", { class: node.run === asked && "asked", href: `#/${part(namespace)}/run/${part(node.run)}` },
      node.workflow), " ", state(node.state), back,
    node.children.length > 0 && h("ul", {},
      node.children.map((child) => branch(child, asked, namespace))),
    node.hidden > 0 && h("div", { class: "dim" }, `… ${node.hidden} more`));
}

function journal(seen) {
  const begin = seen.journal[0]?.at ?? 0;
  const shown = seen.journal.slice(-500);
  return [shown.length < seen.journal.length
    && h("p", { class: "dim" }, `The last ${shown.length} of ${seen.journal.length}.`),
  table([numbers("#"), numbers("after"), "what happened", "value"], shown.map((moment) => h("tr", {},
    h("td", { class: "number dim" }, moment.number),
    h("td", { class: "number dim tight" }, `+${span(moment.at - begin)}`),
    h("td", { class: moment.style }, cut(moment.text, 300)),
    h("td", { class: "mono dim" }, cut(moment.value ?? "", 500)))))];
}

function mailbox(seen) {
  return table([numbers("#"), "signal", "age", "says"], seen.mailbox.map((mail) => h("tr", {},
    h("td", { class: "number" }, mail.number), h("td", {}, mail.signal ?? "(engine)"),
    h("td", {}, age(mail.at)), h("td", { class: "mono" }, json(mail.body)))));
}
