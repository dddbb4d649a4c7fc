// One run: where it stands and why, its timeline, its tree, its journal, its mail.

import { age, confirm, cut, fill, h, json, numbers, refill, span, state, table, when } from "./dom.js";
import { get, part, post, watch } from "./api.js";
import { timeline } from "./timeline.js";

export async function run(page, here) {
  const { namespace, rest, me, current } = here;
  const at = `${part(namespace)}/runs/${part(rest[0])}`;
  const draw = async () => {
    const [seen, tree, why] = await Promise.all(
      [get(at), get(`${at}/tree?limit=200`), get(`${at}/why`)]);
    if (!current()) return;
    refill(page, h("h1", {}, seen.workflow, " ", h("span", { class: "mono dim" }, seen.run)),
      h("p", { class: seen.state === "parked" ? "note" : "dim" }, why.sentence),
      me.may.includes("operate") && actions(at, seen, here, draw), about(seen),
      h("h2", {}, "Timeline"), timeline(seen, namespace),
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
