// The agent's HTTP API. A token is kept for this tab only, and sent as X-Nomad-Token.

const TOKEN = "lepa.token";
const LINE_MAX = 32 * 1024 * 1024;
const LIST_MAX = 20_000;
const LIST_PAGE = 1000;

/** What is looked at: a region, "" for the agent's own, and a namespace, "*" for all. */
export const place = { region: "", namespace: "*" };

/** An answer that is an error. status: of HTTP, 0 where nobody answered. message: in words. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const token = () => sessionStorage.getItem(TOKEN) ?? "";

export function keepToken(secret) {
  if (secret) sessionStorage.setItem(TOKEN, secret);
  else sessionStorage.removeItem(TOKEN);
}

function address(path, query) {
  const given = new URLSearchParams();
  if (place.region) given.set("region", place.region);
  for (const [name, value] of Object.entries(query))
    for (const each of [value].flat()) if (each !== undefined && each !== "") given.append(name, each);
  return `/v1/${path}${given.size ? `?${given}` : ""}`;
}

async function ask(method, path, { query = {}, body, signal } = {}) {
  const headers = token() ? { "X-Nomad-Token": token() } : {};
  let response;
  try {
    response = await fetch(address(path, query), { method, headers, signal, body: body && JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, `The agent at ${location.host} does not answer.`);
  }
  if (response.ok) return response;
  const text = (await response.text()).trim();
  throw new ApiError(response.status, text || `The agent answered ${response.status} to ${method} ${path}.`);
}

async function decoded(response) {
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

/** One page's conversation with the API; all of it ends with the page. */
export class Conversation {
  constructor(signal) {
    this.signal = signal;
  }

  /** The value of a read. */
  async get(path, query = {}) {
    return (await this.page(path, query)).value;
  }

  /**
   * The value of a read and the token of the page that follows.
   *
   * A list over all namespaces leaves out what one may not see. Who has not said who they are and finds nothing looks
   * into one namespace, so that they are asked rather than told that there is nothing.
   */
  async page(path, query = {}) {
    const response = await ask("GET", path, { query, signal: this.signal });
    const value = await decoded(response);
    if (query.namespace === "*" && !value?.length && !token())
      await ask("GET", "jobs", { query: { namespace: "default", per_page: 1 }, signal: this.signal });
    return { value, next: response.headers.get("X-Nomad-NextToken") ?? "" };
  }

  /** A whole list, page by page; cut: whether it is longer than what is fetched at most. */
  async list(path, query = {}) {
    const found = [];
    let next = "";
    do {
      const page = await this.page(path, { ...query, per_page: LIST_PAGE, next_token: next });
      found.push(...(page.value ?? []));
      next = page.next;
    } while (next && found.length < LIST_MAX);
    return { found, cut: Boolean(next) };
  }

  /** The value of a read that may be missing or refused: then `otherwise`. */
  async maybe(path, query = {}, otherwise = null) {
    try {
      return (await this.get(path, query)) ?? otherwise;
    } catch (error) {
      if (error instanceof ApiError && error.status) return otherwise;
      throw error;
    }
  }

  /** Call `changed` once it listens, and whenever something of these topics happens, until the stream ends. */
  async follow(topics, changed) {
    const query = { topic: topics, namespace: "*" };
    const response = await ask("GET", "event/stream", { query, signal: this.signal });
    changed();
    await lines(response, (line) => line !== "{}" && changed());
  }

  /** Text as it comes, until it ends. */
  async text(path, query, take) {
    const response = await ask("GET", path, { query, signal: this.signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let read = await reader.read(); !read.done; read = await reader.read()) take(read.value);
  }
}

async function lines(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    const parts = (rest + read.value).split("\n");
    rest = parts.pop();
    if (rest.length > LINE_MAX) throw new ApiError(500, "A line of the event stream is too long.");
    for (const part of parts) if (part.trim()) take(part.trim());
  }
}

/** A write; its answer. */
export async function write(method, path, body, query = {}) {
  return decoded(await ask(method, path, { query, body }));
}

export const segment = encodeURIComponent;

// Addresses of pages

function page(path, query = {}) {
  const given = new URLSearchParams(query);
  if (place.region) given.set("region", place.region);
  return `/ui/${path}${given.size ? `?${given}` : ""}`;
}

export const links = {
  page,
  job: (id, namespace, part = "") => page(`jobs/${segment(id)}@${segment(namespace)}${part && `/${part}`}`),
  allocation: (id) => page(`allocations/${segment(id)}`),
  node: (id) => page(`clients/${segment(id)}`),
  service: (name, namespace) => page(`services/${segment(name)}`, { namespace }),
};
