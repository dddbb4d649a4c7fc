// Lists that stay true: read again when the server tells of changes, and every few seconds for what
// its counts do not tell. Not while nobody looks, and not under an open dialog.

import { confirm, fill, h } from "./dom.js";
import { part, watch } from "./api.js";

const SLOW = 5000;

export async function live({ namespace, current }, refresh) {
  await refresh();
  if (!current()) return undefined;
  let [busy, again, first] = [false, false, true];
  const once = async () => {
    if (document.hidden || document.querySelector("dialog")) return;
    again = busy;
    if (busy) return;
    busy = true;
    await refresh().catch(() => {});
    busy = false;
    if (again && current()) once();
  };
  const stop = watch(`${part(namespace)}/events`, "counts", () => {
    if (first) first = false;
    else once();
  });
  const timer = setInterval(once, SLOW);
  return () => {
    stop();
    clearInterval(timer);
  };
}

// A place for what went wrong, and a way to do things whose trouble is told there.
export function doing(refresh) {
  const problem = h("p", { class: "note wrong", role: "alert", hidden: true });
  const tell = (text) => {
    problem.hidden = !text;
    fill(problem, text ?? "");
  };
  const act = async (what) => {
    try {
      tell(null);
      await what();
      await refresh();
    } catch (error) {
      tell(error.message);
    }
  };
  // Asks first: with a reason, and with these fields before it.
  const ask = async (title, button, what, fields = []) => {
    const reason = { name: "reason", label: "Why, for the audit" };
    const said = await confirm(title, [...fields, reason], button);
    if (said) await act(() => what(said));
  };
  return { problem, act, ask };
}

// The way to the next page, and back to the first.
export function pages({ namespace, name, rest, asked, go }, next) {
  const at = [name, ...rest.map(encodeURIComponent)].join("/");
  return (next || asked.cursor) && h("p", { class: "actions" },
    asked.cursor && h("button", {
      onclick: () => go(namespace, at, { ...asked, cursor: "" }),
    }, "First page"),
    next && h("button", {
      onclick: () => go(namespace, at, { ...asked, cursor: next }),
    }, "Next page"));
}
