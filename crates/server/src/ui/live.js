// Lists that stay true: read again when the server tells of changes, and every few seconds for what
// its counts do not tell. Not while nobody looks, and not under an open dialog.

import { confirm, fill, h, when } from "./dom.js";
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

// A list that the server looks through stretch by stretch, since few may fit among many. It is asked
// on until a page is full, all was looked at, or somebody stops it: one request at a time, with a
// pause after each that is as long as it took. What took several is not begun anew by itself for
// twenty times as long. `draw` shows what was found so far, and is told whether it goes on.
const FULL = 50;
const PAUSE = 50;
const PART = 20;

export function looking({ current }, ask, draw) {
  let [turn, walks, halted, rests, found] = [0, false, false, 0, null];
  const far = h("span", {});
  const button = h("button", { class: "small", onclick: () => halted ? go() : stop() });
  const note = h("p", { class: "note", role: "status", hidden: true }, far, " ", button);
  const tell = (quiet) => {
    note.hidden = quiet || !(walks || halted);
    const { items, looked_to: to } = found ?? { items: [] };
    fill(far, items.length === 0 ? "Nothing yet" : `${items.length} found so far`,
      to ? [", looked back to ", when(to)] : "", halted ? "." : " …");
    button.textContent = halted ? "Go on" : "Stop";
  };
  const stop = () => {
    turn += 1;
    [walks, halted] = [false, true];
    tell();
  };
  const go = () => walk(found, false).catch(stop);
  const walk = async (from, quiet) => {
    const [mine, begin] = [++turn, performance.now()];
    const left = () => !current() || mine !== turn;
    let come = from;
    // Asks once. How long to pause then; null if that was the last.
    const step = async () => {
      const asked = performance.now();
      const came = await ask({ cursor: come.next, limit: FULL - come.items.length });
      if (left()) return null;
      come = { ...came, items: [...come.items, ...came.items] };
      walks = Boolean(come.next) && come.items.length < FULL;
      if (!quiet || !walks) draw(found = come, walks);
      tell(quiet);
      return walks ? Math.max(PAUSE, performance.now() - asked) : null;
    };
    const steps = async (pause) => {
      while (pause !== null) {
        await new Promise((wake) => setTimeout(wake, pause));
        if (left()) return;
        pause = await step();
        rests = performance.now() + PART * (performance.now() - begin);
      }
    };
    [walks, halted] = [true, false];
    const failed = (problem) => {
      if (!left()) walks = false;
      throw problem;
    };
    const pause = await step().catch(failed);
    // The page is there; the rest comes while it is looked at.
    steps(pause).catch(() => {
      if (left()) return;
      if (quiet) walks = false;
      else stop();
    });
  };
  // By itself only if it was not stopped, and did not just take long; anew, whatever was.
  const look = async (cursor, anew = false) => {
    if (!anew && (walks || halted || performance.now() < rests)) return;
    await walk({ items: [], next: cursor }, found !== null);
  };
  return { note, look };
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
