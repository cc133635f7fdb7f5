// Which page an address means, and its life: load, show, follow what changes, stop when nobody looks.

import { ApiError, Conversation, keepToken, links, place, token, write } from "./api.js";
import { button, h, headline, morph, nothing } from "./dom.js";
import { allocationPage } from "./allocation.js";
import { evaluationsPage, serversPage, variablesPage } from "./cluster.js";
import { jobPage } from "./job.js";
import { jobsPage } from "./jobs.js";
import { modelsPage } from "./models.js";
import { nodePage, nodesPage, topologyPage } from "./nodes.js";
import { servicePage, servicesPage } from "./services.js";
import { notice } from "./talk.js";
import { signIn, tokensPage } from "./tokens.js";

const ROUTES = [
  [/^jobs$/, jobsPage],
  [/^jobs\/(?<id>[^/]+)(?:\/(?<part>[a-z]+))?(?:\/.*)?$/, jobPage],
  [/^allocations\/(?<id>[^/]+)(?:\/.*)?$/, allocationPage],
  [/^clients$/, nodesPage],
  [/^clients\/(?<id>[^/]+)(?:\/.*)?$/, nodePage],
  [/^servers(?:\/.*)?$/, serversPage],
  [/^topology$/, topologyPage],
  [/^services$/, servicesPage],
  [/^services\/(?<id>[^/]+)$/, servicePage],
  [/^evaluations$/, evaluationsPage],
  [/^variables(?:\/.*)?$/, variablesPage],
  [/^models$/, modelsPage],
  [/^settings\/tokens$/, tokensPage],
];
const SETTLED_MS = 500;
const GAP_MS = 1000;
const RETRY_MS = [1000, 2000, 5000, 10_000, 30_000];
const POLL_MS = 5000;

const main = document.getElementById("main");
let visit = null;

/** One stay on a page, from an address to the next. */
class Visit {
  constructor(page, parameters, query) {
    this.page = page;
    this.parameters = parameters;
    this.query = query;
    this.state = page.state?.(query) ?? {};
    this.failures = 0;
    this.ended = false;
    this.control = new AbortController();
    this.timer = 0;
    this.shown = false;
    this.loading = false;
    this.again = false;
  }

  /** Look now; a look that is asked for during another follows it. */
  refresh = async () => {
    clearTimeout(this.timer);
    this.timer = 0;
    if (this.ended || document.hidden) return;
    if (this.loading) {
      this.again = true;
      return;
    }
    this.loading = true;
    const control = this.control;
    const api = new Conversation(control.signal);
    try {
      this.data = await this.page.load(api, this.parameters, this.state);
      if (control.signal.aborted) return;
      this.failures = 0;
      this.show();
      said("");
      if (!this.following) this.follow(control);
      if (this.page.every) this.later(this.page.every);
    } catch (error) {
      if (!control.signal.aborted) this.failed(error);
    } finally {
      this.loading = false;
      if (this.again) {
        this.again = false;
        this.later(GAP_MS);
      }
    }
  };

  /** Show what is known, after a look or a change of what the person asks for. */
  show = () => {
    if (this.ended) return;
    render(this.page.view(this.data, this.parameters, this));
    document.title = `${this.page.title(this.parameters, this.data)} · lepa`;
    if (!this.shown) {
      this.shown = true;
      this.page.begin?.(this.data, this);
      main.querySelector("h1")?.focus({ preventScroll: true });
    }
  };

  later(delay) {
    if (!this.timer) this.timer = setTimeout(this.refresh, delay);
  }

  /** Follow the events of the page's topics; where that is refused, look now and then. */
  async follow(control) {
    const topics = this.page.topics?.(this.parameters);
    if (!topics) return;
    this.following = true;
    try {
      await pause(SETTLED_MS, control.signal);
      await new Conversation(control.signal).follow(topics, () => this.later(GAP_MS));
      this.later(GAP_MS);
    } catch (error) {
      if (!control.signal.aborted) this.later(POLL_MS);
    } finally {
      this.following = false;
    }
  }

  failed(error) {
    const status = error instanceof ApiError ? error.status : -1;
    if (status === 403 || status === 401) {
      render(signIn(error.message, this.page.title(this.parameters)));
      return;
    }
    if (this.shown && status !== 404) said(`${error.message} What you see may be out of date.`);
    else render(broken(error, status, this.refresh));
    if (status === 404) return;
    if (status < 0) console.error(error);
    this.later(RETRY_MS[Math.min(this.failures++, RETRY_MS.length - 1)]);
  }

  /** Stop asking, as nobody looks. */
  rest() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.control.abort();
    this.control = new AbortController();
    this.following = false;
    this.page.rest?.(this);
  }

  end() {
    this.ended = true;
    this.rest();
  }

  /** Do something that changes the cluster, say how it went, and look again. */
  act = async (done, action) => {
    try {
      await action();
      notice(done);
    } catch (error) {
      notice(error.message, "bad");
    }
    this.refresh();
  };
}

function pause(delay, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, delay);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        reject(signal.reason);
      },
      { once: true },
    );
  });
}

function said(words) {
  const state = document.getElementById("state");
  if (state.textContent !== words) state.textContent = words;
}

function broken(error, status, again) {
  if (status === 404)
    return h(
      "div",
      {},
      headline("Not found"),
      nothing(`${error.message}. It may have been removed, or be in another namespace or region.`),
    );
  const words = status < 0 ? "This page could not be shown." : error.message;
  return h(
    "div",
    {},
    headline("No answer"),
    nothing(`${words} It is tried again by itself.`),
    button("Try now", again),
  );
}

function render(...nodes) {
  const next = document.createElement("main");
  next.append(...nodes);
  next.id = "main";
  next.tabIndex = -1;
  morph(main, next);
}

// Where we are

function open() {
  visit?.end();
  const query = new URLSearchParams(location.search);
  place.region = query.get("region") ?? "";
  const path = location.pathname.replace(/^\/ui\/?/, "").replace(/\/$/, "");
  const chosen = query.get("namespace"); // of a single thing it says where that is, not what to list
  if (chosen !== null && !path.includes("/")) place.namespace = chosen || "*";
  if (!path) {
    history.replaceState(null, "", links.page("jobs"));
    return open();
  }
  marked(path.split("/")[0]);
  for (const [pattern, page] of ROUTES) {
    const match = pattern.exec(path);
    if (match) {
      main.replaceChildren(h("p", { class: "loading" }, "Loading…"));
      scrollTo(0, 0);
      visit = new Visit(page, parameters(match.groups ?? {}), query);
      return visit.refresh();
    }
  }
  visit = null;
  render(
    headline("No such page"),
    nothing("There is no page at this address."),
    h("a", { href: links.page("jobs") }, "All jobs"),
  );
  return undefined;
}

function parameters(groups) {
  try {
    return Object.fromEntries(Object.entries(groups).map(([name, text]) => [name, text && decodeURIComponent(text)]));
  } catch {
    return groups;
  }
}

function marked(first) {
  for (const link of document.querySelectorAll("nav.side a")) {
    const here = link.pathname === `/ui/${first}` || (first === "allocations" && link.pathname === "/ui/jobs");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

/** Go to a page of these. */
export function go(address) {
  history.pushState(null, "", address);
  open();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  const elsewhere =
    event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey;
  if (!link || elsewhere || link.target || link.origin !== location.origin || !link.pathname.startsWith("/ui/")) return;
  if (link.hash && link.pathname === location.pathname) return;
  event.preventDefault();
  const inMenu = link.closest("nav.side, .brand") && place.region;
  go(inMenu ? `${link.pathname}?region=${encodeURIComponent(place.region)}` : link.pathname + link.search);
});
addEventListener("popstate", open);
addEventListener("lepa:token", () => {
  choices();
  signed();
});
addEventListener("lepa:reload", open);
addEventListener("pagehide", () => visit?.rest());
addEventListener("pageshow", (event) => event.persisted && visit?.refresh());
document.addEventListener("visibilitychange", () => (document.hidden ? visit?.rest() : visit?.refresh()));

// The head of every page

async function choices() {
  const api = new Conversation();
  const [namespaces, regions] = await Promise.all([api.maybe("namespaces", {}, []), api.maybe("regions", {}, [])]);
  const names = namespaces.map((each) => each.Name);
  if (place.namespace !== "*" && !names.includes(place.namespace)) names.push(place.namespace);
  choose("namespace", [["*", "all"], ...names.sort().map((name) => [name, name])], place.namespace);
  choose(
    "region",
    regions.map((name) => [name, name]),
    place.region || regions[0],
  );
  document.getElementById("region-choice").hidden = regions.length < 2;
}

function choose(id, options, value) {
  const select = document.getElementById(id);
  select.replaceChildren(...options.map(([name, words]) => h("option", { value: name }, words)));
  select.value = value;
  select.onchange = () => {
    place[id] = select.value;
    const given = new URLSearchParams(location.search);
    given.set(id, select.value);
    go(`${location.pathname}?${given}`);
    if (id === "region") choices();
  };
}

function signed() {
  document.getElementById("sign-in").textContent = token() ? "Signed in" : "Sign in";
}

function labelled() {
  const said = document.querySelector('meta[name="lepa-label"]');
  const label = document.getElementById("label");
  label.textContent = said.content;
  label.hidden = !said.content;
  if (said.dataset.background) label.style.backgroundColor = said.dataset.background;
  if (said.dataset.color) label.style.color = said.dataset.color;
}

/** `lepa ui -authenticate` leads here with a token that is good for one exchange. */
async function exchanged() {
  const query = new URLSearchParams(location.search);
  const once = query.get("ott");
  if (!once) return;
  query.delete("ott");
  history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
  try {
    const answer = await write("POST", "acl/token/onetime/exchange", { OneTimeSecretID: once });
    keepToken(answer.Token.SecretID);
  } catch (error) {
    notice(`The one-time token was not taken: ${error.message}`, "bad");
  }
}

labelled();
await exchanged();
signed();
open();
choices().catch((error) => said(error.message));
