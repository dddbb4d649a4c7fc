// Asking the server. The cookie is sent by the browser; a session that has ended leads to the login.

const BASE = "../api/v1/";

export class Problem extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

async function ask(method, path, body) {
  const options = { method, headers: {}, credentials: "same-origin" };
  if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const answer = await fetch(BASE + path, options);
  const said = await answer.json().catch(() => ({}));
  if (answer.status === 401) {
    location.assign("../login");
  }
  if (!answer.ok) {
    throw new Problem(answer.status, said.code ?? "broken", said.detail ?? answer.statusText);
  }
  return said;
}

// What is posted for is kept as a file of this name.
export async function file(path, body, name) {
  const answer = await fetch(BASE + path, { method: "POST", credentials: "same-origin",
    headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw new Problem(answer.status, said.code ?? "broken", said.detail ?? answer.statusText);
  }
  const url = URL.createObjectURL(await answer.blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}

export const get = (path) => ask("GET", path);
export const post = (path, body) => ask("POST", path, body);
export const put = (path, body) => ask("PUT", path, body);
export const del = (path) => ask("DELETE", path);
export const part = encodeURIComponent;

export function query(fields) {
  const said = Object.entries(fields).filter(([, value]) => value !== "" && value != null);
  return said.length ? `?${new URLSearchParams(said)}` : "";
}

// Calls back on each event; returns how to stop.
export function watch(path, kind, heard) {
  const source = new EventSource(BASE + path);
  source.addEventListener(kind, (event) => heard(JSON.parse(event.data)));
  return () => source.close();
}
