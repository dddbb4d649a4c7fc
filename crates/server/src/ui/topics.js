// Topics: who listens, how much was said, and what of it nobody heard.

import { age, fill, h, json, link, numbers, refill, table } from "./dom.js";
import { del, get, part, put, query } from "./api.js";
import { doing, live, pages } from "./live.js";

export async function topics(page, here) {
  const { namespace, rest, me, current } = here;
  if (rest[0]) return publications(page, here);
  const base = part(namespace);
  const may = me.may.includes("operate");
  const list = h("div", {});
  const refresh = async () => {
    const found = await get(`${base}/topics`);
    if (current()) refill(list, draw(found.items));
  };
  const { problem, ask } = doing(refresh);
  const at = (topic, workflow) => `${base}/topics/${part(topic)}/subscribers/${part(workflow)}`;
  const end = (topic, workflow) => ask(`Shall ${workflow} hear no more of ${topic}?`, "Unsubscribe",
    (said) => del(`${at(topic, workflow)}${query(said)}`));
  const begin = (topic) => ask(`Who shall hear of ${topic}?`, "Subscribe",
    ({ workflow, reason }) => put(at(topic, workflow), { reason }),
    [{ name: "workflow", label: "Workflow" }]);
  const who = (topic) => topic.subscribers.length === 0
    ? h("span", { class: "look" }, "nobody listens")
    : h("ul", { class: "plain" }, topic.subscribers.map((one) => h("li", {},
      link(`#/${base}/runs?workflow=${part(one.workflow)}`, one.workflow),
      h("span", { class: "dim" }, " for ", age(one.since)),
      may && h("button", { class: "small", title: "Unsubscribe",
        "aria-label": `Unsubscribe ${one.workflow} from ${topic.topic}`,
        onclick: () => end(topic.topic, one.workflow) }, "×"))));
  const draw = (all) => all.length === 0
    ? h("p", { class: "dim" }, "Nothing was published, and nobody listens.")
    : table(["topic", "who listens", numbers("published"), numbers("unheard"), "last", ""],
      all.map((topic) => h("tr", {},
        h("td", {}, link(`#/${base}/topics/${part(topic.topic)}`, topic.topic)),
        h("td", {}, who(topic)),
        h("td", { class: "number" }, topic.publications.toLocaleString(), topic.more && "+"),
        h("td", { class: `number ${topic.unheard ? "look" : "dim"}` },
          topic.unheard.toLocaleString(), topic.more && "+"),
        h("td", { class: "tight" }, topic.last_at ? [age(topic.last_at), " ago"] : "never"),
        h("td", {}, may && h("button", { onclick: () => begin(topic.topic) }, "Subscribe …")))));
  fill(page, h("h1", {}, "Topics"), problem, list);
  return live(here, refresh);
}

async function publications(page, here) {
  const { namespace, rest, asked, current } = here;
  const [base, topic] = [part(namespace), rest[0]];
  const list = h("div", {});
  const refresh = async () => {
    const path = `${base}/topics/${part(topic)}/publications`;
    const found = await get(`${path}${query({ cursor: asked.cursor })}`);
    if (!current()) return;
    refill(list, found.items.length === 0 ? h("p", { class: "dim" }, "Nothing was published.")
      : table(["age", "by", numbers("heard by"), "says"], found.items.map((one) => h("tr", {},
        h("td", { class: "tight" }, age(one.at)),
        h("td", { class: "mono tight" }, one.by ? link(`#/${base}/run/${part(one.by)}`, one.by)
          : h("span", { class: "dim" }, "a client")),
        h("td", { class: `number ${one.heard ? "" : "look"}` }, one.heard),
        h("td", { class: "mono" }, json(one.payload, 300))))),
    pages(here, found.next));
  };
  fill(page, h("h1", {}, link(`#/${base}/topics`, "Topics"), ` / ${topic}`), list);
  return live(here, refresh);
}
