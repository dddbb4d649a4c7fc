// A statement of one's own, which only reads, over all namespaces. It stays in the address.

import { cut, fill, h, numbers, table } from "./dom.js";
import { file, get, post } from "./api.js";

const FIRST = "SELECT * FROM roundel_messages LIMIT 20";

export async function sql(page, here) {
  const { asked, current } = here;
  const text = h("textarea", { name: "statement", spellcheck: "false",
    "aria-label": "A statement that reads" });
  text.value = asked.statement ?? FIRST;
  const [found, problem] = [h("div", {}), h("p", { class: "note wrong", role: "alert", hidden: true })];
  const asking = async (what) => {
    problem.hidden = true;
    try {
      await what({ statement: text.value, limit: 200 });
    } catch (error) {
      if (!current()) return;
      problem.hidden = false;
      fill(problem, error.message);
    }
  };
  const run = () => asking(async (body) => {
    fill(found, h("p", { class: "dim" }, "…"));
    const answer = await post("sql", body).catch((error) => {
      fill(found);
      throw error;
    });
    if (current()) fill(found, result(answer));
  });
  const save = () => asking(async (body) => {
    await file("sql/csv", { ...body, limit: 10000 }, "roundel.csv");
  });
  // The address remembers it; the page is not drawn anew.
  const keep = () => {
    const filters = new URLSearchParams({ statement: text.value });
    history.replaceState(null, "", `#/${encodeURIComponent(here.namespace)}/sql?${filters}`);
  };
  const form = h("form", { onsubmit: (event) => {
    event.preventDefault();
    keep();
    run();
  } }, text, h("p", { class: "actions" }, h("button", {}, "Run"),
    h("button", { type: "button", onclick: save }, "Save as CSV"),
    h("span", { class: "dim" }, "Ctrl+Enter runs it, Escape leaves it. It has two seconds.")));
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    else if (event.key === "Escape") text.blur();
  });
  const list = await get("sql/views");
  if (!current()) return;
  const views = list.items.map((one) => h("tr", {}, h("td", { class: "dim tight" }, one.kind),
    h("td", { class: "tight" }, h("button", { class: "small", onclick: () => {
      text.value = `SELECT * FROM "${one.name.replaceAll('"', '""')}" LIMIT 20`;
      form.requestSubmit();
    } }, one.name)), h("td", { class: "mono dim" }, one.columns.join(", "))));
  fill(page, h("h1", {}, "SQL"), form, problem, found, h("h2", {}, "What there is to ask"),
    table(["", "name", "columns"], views));
  if (asked.statement !== undefined) await run();
}

function result({ columns, rows, more }) {
  const number = (at) => rows.length > 0 && rows.every((row) => typeof row[at] === "number");
  const value = (one) => (one === null ? h("span", { class: "dim" }, "null")
    : cut(typeof one === "string" ? one : JSON.stringify(one), 500));
  const count = `${rows.length} row${rows.length === 1 ? "" : "s"}${more ? ", and there are more" : ""}`;
  // What is short is not broken; what is wide is moved.
  const short = (one) => String(one).length <= 40 ? " tight" : "";
  const form = (one, at) => `${number(at) ? "number" : "mono"}${short(one)}`;
  return [h("p", { class: "dim" }, count), columns.length > 0 && h("div", {
    class: "across", tabindex: 0, role: "region", "aria-label": "What was found",
  }, table(
    columns.map((name, at) => (number(at) ? numbers(name) : name)),
    rows.map((row) => h("tr", {}, row.map((one, at) =>
      h("td", { class: form(one, at) }, value(one)))))))];
}
