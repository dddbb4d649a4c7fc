// The timeline of a run: its calls as bars over time, each in parts. What a part is tells its form,
// its title, the list below its call, and what is read out; not its colour alone.

import { cut, fill, h, link, numbers, span, table } from "./dom.js";
import { part } from "./api.js";

// Kinds of parts, in words.
const KINDS = {
  queued: "ready, nobody has it", runs: "worked on", pauses: "pause before another attempt",
  waits: "waits", fails: "ends in a failure",
};

const kinds = ({ kind, failure }) => failure ? [kind, "fails"] : [kind];
const form = (one) => `bar ${kinds(one).join(" ")}`;

// As long as the page is open: is waiting left out, and of which calls are the parts listed?
let brief = false;
const opened = new Set();

// Where a time stands on the lane, 0 to 1. Where nothing is worked on for long, time may be left out.
function scale(parts, { from: begin, to: end }) {
  const times = [...new Set([begin, end, ...parts.flatMap(({ from, to }) => [from, to])])];
  times.sort((one, other) => one - other);
  const works = parts.filter((one) => one.kind === "runs" && one.to > one.from);
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
  return { idle, place: (time) => at > 0 ? places.get(time) / at : 0 };
}

// A part in words.
function said(one) {
  const took = one.to > one.from ? ` (${span(one.to - one.from)})` : "";
  return `${one.text}${took}${one.failure ? `, failed: ${cut(one.failure, 300)}` : ""}`;
}

function lane(bar, place) {
  const words = bar.parts.map(said).join("; ");
  const track = h("div", { class: "track", role: "img", "aria-label": words || "at once" });
  for (const one of bar.parts) {
    const drawn = h("div", { class: form(one), title: said(one) });
    const [from, to] = [place(one.from), place(one.to)];
    drawn.style.left = `${100 * from}%`;
    drawn.style.width = `${100 * Math.max(0, to - from)}%`;
    track.append(drawn);
  }
  return h("td", { class: "lane" }, track);
}

const swatch = (look) => h("span", { class: "track swatch", "aria-hidden": "true" },
  h("span", { class: look }));

// What a call is, with its parts below if they are asked for.
function about(bar, { run, namespace }, again) {
  const name = `${run} ${bar.call ?? bar.from}`;
  const failures = bar.parts.filter((one) => one.failure).length;
  const open = opened.has(name);
  const turn = () => {
    if (!opened.delete(name)) opened.add(name);
    again(name);
  };
  const many = bar.parts.length;
  const more = (many > 1 || failures > 0) && h("button", {
    class: "small parts", "aria-expanded": String(open), "data-of": name, onclick: turn,
  }, failures > 0 ? `${failures} failed` : `${many} parts`);
  const text = cut(bar.text, 120);
  return h("td", {}, bar.run && namespace ? link(`#/${part(namespace)}/run/${part(bar.run)}`, text)
    : h("span", { class: bar.call === null && "dim" }, text), more && [" ", more],
  open && more && h("ul", { class: "plain parts" }, bar.parts.map((one) =>
    h("li", {}, swatch(form(one)), " ", said(one)))));
}

// Of what has only an end it is not known.
function took({ parts, from, to, ended }) {
  if (parts.length === 0 || (ended && to === from)) return "";
  return `${ended ? "" : "open "}${span(to - from)}`;
}

function draw({ bars, from, to, left_out: left }, place, here, again) {
  const rows = bars.map((bar) => h("tr", {}, about(bar, here, again), lane(bar, place),
    h("td", { class: "number tight" }, took(bar))));
  const drawn = table(["call", `${span(to - from)} in all`, numbers("took")], rows);
  drawn.classList.add("bars");
  return [left > 0 && h("p", { class: "dim" },
    `The last ${bars.length} of ${bars.length + left}.`), drawn];
}

function legend(parts) {
  const known = Object.keys(KINDS)
    .filter((word) => parts.some((one) => kinds(one).includes(word)));
  return h("ul", { class: "plain wide legend" },
    known.map((word) => h("li", {}, swatch(`bar ${word}`), " ", KINDS[word])));
}

export function timeline({ run, timeline: all }, namespace) {
  if (all.bars.length === 0) return h("p", { class: "dim" }, "No calls yet.");
  const parts = all.bars.flatMap((bar) => bar.parts);
  const box = h("div", {});
  const show = () => {
    const { idle, place } = scale(parts, all);
    const turn = () => {
      brief = !brief;
      show();
      box.querySelector("button").focus();
    };
    const again = (name) => {
      show();
      [...box.querySelectorAll("button.parts")].find((one) => one.dataset.of === name)?.focus();
    };
    fill(box, idle > 0 && h("button", { class: "small", "aria-pressed": String(brief), onclick: turn },
      `Leave out ${span(idle)} of waiting`), legend(parts),
    draw(all, place, { run, namespace }, again));
  };
  show();
  return box;
}
