// Elements from data. Every text becomes a text node: nothing that the API says is ever read as markup.

const HANDLERS = ["onclick", "oninput", "onchange", "onsubmit"];

/** An element. Properties: class, href and other attributes; on… handlers; style as an object; value and checked. */
export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (HANDLERS.includes(name)) element[name] = value;
    else if (name === "style") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else if (name !== "value") element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  if (properties?.value !== undefined) element.value = properties.value;
  return element;
}

/** Change `from` into `to` in place, so that focus, selection, scroll positions and open details stay. */
export function morph(from, to) {
  if (from.nodeName !== to.nodeName) return from.replaceWith(to);
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return undefined;
  }
  for (const { name } of [...from.attributes]) {
    const users = name === "style" || (name === "open" && from.nodeName === "DETAILS");
    if (!users && !to.hasAttribute(name)) from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes)
    if (name !== "style" && from.getAttribute(name) !== value) from.setAttribute(name, value);
  if (from.style.cssText !== to.style.cssText) from.style.cssText = to.style.cssText;
  for (const name of HANDLERS) from[name] = to[name];
  if (from.hasAttribute("data-kept")) return undefined;
  morphChildren(from, to);
  if ("value" in to && from !== document.activeElement && from.value !== to.value) from.value = to.value;
  return undefined;
}

function morphChildren(from, to) {
  const keyed = new Map();
  for (const child of from.children) if (child.dataset.key) keyed.set(child.dataset.key, child);
  let at = from.firstChild;
  for (const next of [...to.childNodes]) {
    const key = next.dataset?.key;
    const fits = at && !at.dataset?.key && at.nodeName === next.nodeName;
    const same = key ? keyed.get(key) : fits ? at : null;
    if (!same) {
      from.insertBefore(next, at);
      continue;
    }
    if (same === at) at = at.nextSibling;
    else from.insertBefore(same, at);
    morph(same, next);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

// Parts of pages

/** A page's headline with what stands beside it. */
export function headline(title, ...beside) {
  return h("div", { class: "headline" }, h("h1", { tabindex: "-1" }, title), ...beside);
}

/** A titled part of a page. */
export function section(title, ...children) {
  return h("section", {}, title ? h("h2", {}, title) : null, ...children);
}

/** A table. columns: texts; one that begins with > is a number, to the right. rows: from `row`. */
export function table(caption, columns, rows, empty = "Nothing here yet.") {
  if (!rows.length) return typeof empty === "string" ? h("p", { class: "empty" }, empty) : empty;
  const heads = columns.map((text) =>
    h("th", { scope: "col", class: text.startsWith(">") ? "number" : null }, text.replace(/^>/, "")),
  );
  for (const line of rows)
    [...line.children].forEach((cell, at) => {
      cell.dataset.label = columns[at].replace(/^>/, "");
      if (columns[at].startsWith(">")) cell.classList.add("number");
    });
  return h(
    "div",
    { class: "scroll" },
    h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows)),
  );
}

/** One row of a table; key: what it is about, so that it is found again. */
export function row(key, ...cells) {
  return h("tr", { "data-key": key }, ...cells.map((cell) => h("td", {}, cell)));
}

/** Names and values. */
export function facts(...pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value ?? "–"))),
  );
}

/** A state in a word, with a colour that is never the only sign. */
export function badge(word, tone) {
  return h("span", { class: "badge", "data-tone": tone ?? toneOf(word) }, word || "–");
}

/** A bar of parts. parts: [{name, count, tone}]; room: what a full bar is, else all parts together. */
export function bar(parts, room = 0) {
  const shown = parts.filter((part) => part.count > 0);
  const whole = Math.max(
    room,
    shown.reduce((sum, part) => sum + part.count, 0),
  );
  const said = shown.map((part) => `${part.count} ${part.name}`).join(", ") || "none";
  return h(
    "span",
    { class: "bar", role: "img", "aria-label": said, title: said },
    shown.map((part) =>
      h("span", { "data-tone": part.tone ?? toneOf(part.name), style: { width: `${(100 * part.count) / whole}%` } }),
    ),
  );
}

/** How full something is, as a bar and in words. used, total: numbers; say: how such a number is written. */
export function fill(used, total, say) {
  const share = total > 0 ? used / total : 0;
  const exact = say ? `${say(used)} of ${say(total)}` : percent(share);
  const tone = share > 1 ? "bad" : share > 0.85 ? "warn" : "accent";
  const words = say ? `${percent(share)} of ${say(total)}` : exact;
  return h(
    "span",
    { class: "fill", title: exact },
    h(
      "span",
      { class: "bar", role: "img", "aria-label": exact },
      h("span", { "data-tone": tone, style: { width: `${Math.min(100, 100 * share)}%` } }),
    ),
    h("span", { class: "words" }, words),
  );
}

/** A button. tone: "main", "danger" or nothing. */
export function button(words, onclick, tone = "", extra = {}) {
  return h("button", { type: "button", class: `button ${tone}`, onclick, ...extra }, words);
}

/** Links to parts of a thing. tabs: [[words, address]]; here: the address of the one that is shown. */
export function tabs(list, here) {
  return h(
    "nav",
    { class: "tabs", "aria-label": "Parts of this page" },
    list.map(([words, href]) => h("a", { href, "aria-current": href === here ? "page" : null }, words)),
  );
}

/** An empty list, and what to do about it. command: what to type, or "". */
export function nothing(words, command = "") {
  return h("div", { class: "empty" }, h("p", {}, words), command ? h("pre", {}, h("code", {}, command)) : null);
}

/** A pair of buttons for a list that comes in pages. */
export function pager(state, next, turn) {
  if (!state.before.length && !next) return null;
  return h(
    "div",
    { class: "pager" },
    button("Previous", () => turn(state.before.pop() ?? ""), "quiet", { disabled: !state.before.length }),
    button(
      "Next",
      () => {
        state.before.push(state.token);
        turn(next);
      },
      "quiet",
      { disabled: !next },
    ),
  );
}

// Words for figures

const TONES = {
  running: "good",
  ready: "good",
  alive: "good",
  passing: "good",
  successful: "good",
  healthy: "good",
  eligible: "good",
  complete: "done",
  dead: "done",
  stopped: "done",
  cancelled: "done",
  canceled: "done",
  left: "done",
  "scaled to 0": "done",
  pending: "wait",
  starting: "wait",
  queued: "wait",
  blocked: "warn",
  paused: "wait",
  initializing: "wait",
  deploying: "wait",
  waiting: "warn",
  recovering: "warn",
  degraded: "warn",
  draining: "warn",
  ineligible: "warn",
  warning: "warn",
  failed: "bad",
  down: "bad",
  lost: "bad",
  critical: "bad",
  failing: "bad",
  unhealthy: "bad",
  unknown: "lost",
  disconnected: "lost",
  failure: "bad",
  success: "good",
};

/** The colour of a state. */
export function toneOf(word) {
  return TONES[String(word).toLowerCase()] ?? "plain";
}

export const percent = (share) => `${Math.round(100 * share)} %`;
export const megahertz = (value) => (value >= 10_000 ? `${(value / 1000).toFixed(1)} GHz` : `${Math.round(value)} MHz`);
export const mebibytes = (value) => (value >= 1024 ? `${(value / 1024).toFixed(1)} GiB` : `${Math.round(value)} MiB`);
export const bytes = (value) => mebibytes(value / 1_048_576);
export const short = (id) => (id ?? "").slice(0, 8);
export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

/** Milliseconds of what the API calls a time: nanoseconds, or RFC 3339; 0 for never. */
export function moment(value) {
  if (typeof value === "number") return value / 1e6;
  const parsed = Date.parse(value ?? "");
  return Number.isNaN(parsed) || parsed < 0 ? 0 : parsed;
}

const STEPS = [
  [86_400, "d"],
  [3600, "h"],
  [60, "m"],
  [1, "s"],
];

/** A span of seconds in its two largest units at most. */
export function span(seconds) {
  const at = STEPS.findIndex(([size]) => seconds >= size);
  if (at < 0) return "0s";
  const [size, unit] = STEPS[at];
  const rest = STEPS[at + 1];
  const less = rest ? Math.floor((seconds % size) / rest[0]) : 0;
  return `${Math.floor(seconds / size)}${unit}${less && seconds < 10 * size ? ` ${less}${rest[1]}` : ""}`;
}

/** When something was: how long ago, with the exact time beside it. */
export function ago(value) {
  const then = moment(value);
  if (!then) return "–";
  const date = new Date(then);
  const passed = (Date.now() - then) / 1000;
  return h(
    "time",
    { datetime: date.toISOString(), title: date.toLocaleString() },
    passed < 1 ? "just now" : `${span(passed)} ago`,
  );
}
