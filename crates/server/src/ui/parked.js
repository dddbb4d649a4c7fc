// What waits for an operator: by what went wrong, one by one, and what can be done about it.

import { age, confirm, cut, fill, h, link, numbers, refill, table, when } from "./dom.js";
import { get, part, post, query } from "./api.js";
import { live, looking, pages } from "./live.js";

const OF_RUNS = [["retry", "Retry"], ["cancel", "Cancel"], ["undo", "Undo"],
  ["complete", "Complete"]];
const OF_ROLLBACKS = [["retry", "Try again"], ["skip", "Skip that undo"], ["accept", "Accept"]];
const OF_SIGNALS = [["offer", "Offer"], ["discard", "Discard"]];

export async function parked(page, here) {
  const { namespace, asked, me, current, go } = here;
  const base = `${part(namespace)}/parked`;
  const may = me.may.includes("operate");
  const [all, list] = [h("div", {}), h("div", {})];
  const problem = h("p", { class: "note wrong", role: "alert", hidden: true });
  const tell = (text) => {
    problem.hidden = !text;
    fill(problem, text ?? "");
  };
  const act = async (path, body) => {
    try {
      tell(null);
      await post(path, body);
      if (asked.id) go(namespace, "parked");
      else await refresh(true);
    } catch (error) {
      tell(error.message);
    }
  };
  const about = async (item, word, name) => {
    const fields = [{ name: "reason", label: "Why, for the audit" }];
    if (word === "complete") {
      fields.unshift({ name: "value", label: "What it comes to, as JSON", kind: "textarea",
        value: "null" });
    }
    const said = await confirm(`${name}: ${item.workflow}?`, fields, name);
    if (!said) return;
    const body = { reason: said.reason, seen: item.epoch };
    const value = said.value === undefined ? undefined : read(said.value);
    if (value?.wrong) return;
    if (value) body.value = value.of;
    await act(`${base}/${part(item.id)}/${word}`, body);
  };
  // What was typed, as JSON.
  const read = (text) => {
    try {
      return { of: JSON.parse(text) };
    } catch (error) {
      tell(`This is not JSON: ${error.message}`);
      return { wrong: true };
    }
  };
  const edit = async (item) => {
    const { input } = await get(`${base}/${part(item.id)}`);
    const said = await confirm("Begin anew with another input?", [
      { name: "input", label: "Input, as JSON", kind: "textarea",
        value: JSON.stringify(input, null, 2) },
      { name: "reason", label: "Why, for the audit" }], "Retry with this");
    if (!said) return;
    const fresh = read(said.input);
    if (!fresh.wrong) {
      await act(`${base}/${part(item.id)}/retry`, { input: fresh.of, reason: said.reason, seen: item.epoch });
    }
  };
  const many = async (group, word, name) => {
    const body = { remedy: word, group: group.fingerprint };
    const { found } = await post(base, { ...body, dry_run: true });
    const said = await confirm(`${name} ${found} that are alike?`, [
      { name: "count", label: `Type ${found} to go on` },
      { name: "reason", label: "Why, for the audit" }], name);
    if (!said) return;
    if (said.count.trim() === String(found)) {
      await act(base, { ...body, expect: found, reason: said.reason });
    } else tell(`Nothing was done: ${found} was to be typed.`);
  };
  const remedies = (item) => {
    const known = item.signal ? OF_SIGNALS
      : item.state === "rollback_failed" ? OF_ROLLBACKS : OF_RUNS;
    return h("div", { class: "actions" },
      known.map(([word, name]) => h("button", { onclick: () => about(item, word, name) }, name)),
      known === OF_RUNS && h("button", { onclick: () => edit(item) }, "Edit and retry …"));
  };
  const alike = (group) => h("tr", {},
    h("td", { class: "number" }, group.count), h("td", {}, group.workflows.join(" ")),
    h("td", { class: "look tight" }, cut(group.code, 60)), h("td", {}, cut(group.message, 300)),
    h("td", {}, h("div", { class: "actions" },
      link(`#/${part(namespace)}/parked?group=${part(group.fingerprint)}`, "Show"),
      may && h("button", { onclick: () => many(group, "retry", "Retry") }, "Retry all …"),
      may && h("button", { onclick: () => many(group, "cancel", "Cancel") }, "Cancel all …"))));
  const one = (item) => h("tr", {},
    h("td", {}, link(`#/${part(namespace)}/run/${part(item.run)}`, item.workflow),
      item.signal && ` signal ${item.signal}`, item.key && h("div", { class: "dim" }, item.key)),
    h("td", { class: "tight" }, age(item.since)),
    h("td", { class: "look tight" }, cut(item.failure?.code ?? "", 60)), h("td", {}, cut(item.failure?.message ?? "")),
    h("td", {}, may && remedies(item)));
  const ask = (at) => asked.id
    ? get(`${base}/${part(asked.id)}`).then((item) => ({ items: [item], next: null }))
    : get(`${base}${query({ group: asked.group, ...at })}`);
  const { note, look } = looking(here, ask, ({ items, next }, on) => {
    refill(list,
      h("h2", {}, asked.group ? "Those of the group" : asked.id ? "This one" : "One by one"),
      items.length > 0 ? table(["what", "since", "code", "reason", ""], items.map(one))
        : !on && h("p", { class: "dim" }, "Nothing is parked."),
      !on && pages(here, next));
  });
  const together = async () => {
    const groups = asked.id ? { items: [] } : await get(`${base}/groups`);
    if (!current()) return;
    refill(all, groups.items.length > 0 && [h("h2", {}, "Alike"),
      table([numbers("count"), "workflows", "code", "such as", ""], groups.items.map(alike)),
      groups.looked_to && h("p", { class: "dim" }, "Counted back to ", when(groups.looked_to),
        "; there are older ones.")]);
  };
  const refresh = (anew) => Promise.all([together(), look(asked.cursor, anew === true)]);
  fill(page, h("h1", {}, "Parked"), problem, all, list, note);
  return live(here, refresh);
}
