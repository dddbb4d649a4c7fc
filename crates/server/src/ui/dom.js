// Making elements. What comes from the server becomes text, never markup, and never a link.

export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function fill(element, ...children) {
  element.replaceChildren();
  add(element, children);
}

// The same, where something stood before: what did not change is not drawn again, and whoever was
// on a link or a button by the keyboard stays there.
export function refill(element, ...children) {
  const fresh = element.cloneNode(false);
  add(fresh, children);
  if (fresh.isEqualNode(element)) return;
  const all = () => [...element.querySelectorAll("a, button, summary")];
  const name = (one) => `${one.getAttribute("href")} ${one.textContent}`;
  const before = all();
  const was = before.indexOf(document.activeElement);
  const same = (one) => was >= 0 && name(one) === name(before[was]);
  const nth = before.slice(0, Math.max(0, was)).filter(same).length;
  element.replaceChildren(...fresh.childNodes);
  all().filter(same)[nth]?.focus({ preventScroll: true });
}

export const link = (to, ...text) => h("a", { href: to }, ...text);

export const input = (name, hint, value) =>
  h("input", { name, placeholder: hint, "aria-label": hint, value: value ?? "" });

// Long values are cut: a page is no place for megabytes.
export function cut(text, most = 2000) {
  const shown = String(text);
  return shown.length > most ? `${shown.slice(0, most)} … (${shown.length} characters)` : shown;
}

export function json(value, most = 2000) {
  return value === null || value === undefined ? "" : cut(JSON.stringify(value), most);
}

// Microseconds since 1970.
export function when(at) {
  if (at === null || at === undefined) return "";
  const date = new Date(at / 1000);
  return h("time", { datetime: date.toISOString(), title: date.toISOString() },
    date.toLocaleString());
}

export function span(micros) {
  const seconds = Math.abs(micros) / 1e6;
  if (seconds < 0.001) return `${Math.round(micros)} µs`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

export function age(at) {
  const seconds = Math.max(0, Math.floor(Date.now() / 1000 - at / 1e6));
  const text = seconds < 60 ? `${seconds} s` : span(seconds * 1e6);
  return h("span", { title: new Date(at / 1000).toISOString() }, text);
}

// A time to come, as text; how long until then.
export function until(text) {
  const date = new Date(text);
  const left = date.getTime() - Date.now();
  return h("time", { datetime: text, title: text }, date.toLocaleString(),
    h("span", { class: "dim" }, left > 0 ? ` in ${span(left * 1000)}` : " now"));
}

// A line through numbers, the newest at its right end.
export function spark(numbers) {
  const [width, height] = [96, 20];
  const most = Math.max(1, ...numbers);
  const place = (number, at) =>
    `${((at * width) / Math.max(1, numbers.length - 1)).toFixed(1)},` +
    `${(height - 1 - (number * (height - 2)) / most).toFixed(1)}`;
  const make = (tag, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  const drawn = make("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`,
    "aria-hidden": "true" });
  drawn.append(make("polyline", { points: numbers.map(place).join(" ") }));
  return drawn;
}

const STYLES = {
  completed: "good", failed: "bad", rollback_failed: "bad", parked: "look", running: "busy",
  rolling_back: "busy", cancelled: "dim", rolled_back: "dim",
};

export function state(word) {
  return h("span", { class: STYLES[word] ?? "" }, word.replaceAll("_", " "));
}

// A column of numbers, whose name stands where they stand.
export function numbers(name) {
  return h("th", { class: "number" }, name);
}

// On a narrow screen a row is a list of its cells, each with the name of its column.
export function table(columns, rows) {
  const head = (name) => name instanceof Node ? name : h("th", {}, name);
  const heads = columns.map(head);
  const body = h("tbody", {}, rows);
  for (const row of body.children) {
    [...row.children].forEach((cell, nth) => cell.setAttribute("data-in", heads[nth]?.textContent ?? ""));
  }
  return h("table", {}, h("thead", {}, h("tr", {}, heads)), body);
}

// Asks before something is done: what, and with which fields. Null if they leave.
export function confirm(title, fields, button) {
  return new Promise((resolve) => {
    const inputs = fields.map((field) => {
      const input = h(field.kind ?? "input", { name: field.name });
      if (field.value !== undefined) input.value = field.value;
      return [field, input];
    });
    const form = h("form", { method: "dialog", onsubmit: () => { dialog.returnValue = "yes"; } },
      h("h2", {}, title),
      inputs.map(([field, input]) => h("label", {}, field.label, " ", input)),
      h("div", { class: "actions" },
        h("button", { value: "yes" }, button),
        h("button", { type: "button", onclick: () => dialog.close("no") }, "Leave it")));
    const dialog = h("dialog", { onclose: () => {
      dialog.remove();
      const said = Object.fromEntries(inputs.map(([field, input]) => [field.name, input.value]));
      resolve(dialog.returnValue === "yes" ? said : null);
    } }, form);
    document.body.append(dialog);
    dialog.showModal();
  });
}
