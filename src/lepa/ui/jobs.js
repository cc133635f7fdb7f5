// The list of jobs, and what their states are called.

import { links, place } from "./api.js";
import { ago, badge, bar, h, headline, nothing, pager, row, table } from "./dom.js";

const JOBS_SHOWN = 100;
const TYPING_MS = 250;
const STATES = ["pending", "running", "failed", "lost", "unknown", "complete"];

/** How many allocations are in which state, in an order that is always the same. statuses: texts. */
export function tally(statuses) {
  const counts = new Map(STATES.map((name) => [name, 0]));
  for (const status of statuses) counts.set(status, (counts.get(status) ?? 0) + 1);
  return [...counts].map(([name, count]) => ({ name, count }));
}

/** What a job of the list is doing, in a word. */
export function stateOf(job) {
  const wanted = job.GroupCountSum;
  const now = (job.Allocs ?? []).filter(
    (alloc) => alloc.JobVersion === job.Version || alloc.ClientStatus === "running",
  );
  const running = now.filter((alloc) => alloc.ClientStatus === "running").length;
  const pending = now.filter((alloc) => alloc.ClientStatus === "pending").length;
  const failed = now.some((alloc) => ["failed", "lost"].includes(alloc.ClientStatus));
  if (job.ChildStatuses?.length || (job.ParentID === "" && job.Status === "running" && !wanted && job.Type !== "batch"))
    return job.Status;
  if (job.Stop) return "stopped";
  if (["batch", "sysbatch"].includes(job.Type)) {
    if (job.Status === "dead") return failed ? "failed" : "complete";
    return running ? "running" : pending ? "starting" : job.Status === "running" ? "waiting" : job.Status;
  }
  if (job.Type === "system") return running ? "running" : pending ? "starting" : failed ? "failed" : "waiting";
  if (job.Status === "dead") return failed ? "failed" : "complete";
  if (wanted && !running && !pending && !failed) return "waiting";
  if (job.LatestDeployment?.IsActive) return job.LatestDeployment.Status === "paused" ? "paused" : "deploying";
  if (!wanted) return "scaled to 0";
  if (running >= wanted) return "running";
  if (running) return "degraded";
  return failed ? "failing" : "starting";
}

/** How many of a job's allocations run, as a bar and in words. */
function allocations(job) {
  const counts = tally((job.Allocs ?? []).map((alloc) => alloc.ClientStatus));
  const running = counts.find((part) => part.name === "running").count;
  const words =
    ["service", "batch"].includes(job.Type) && !job.Stop && job.GroupCountSum
      ? `${running}/${job.GroupCountSum} running`
      : `${running} running`;
  const finished = counts.find((part) => part.name === "complete").count;
  const shown = ["batch", "sysbatch"].includes(job.Type) && !running && finished ? `${finished} complete` : words;
  return h(
    "span",
    { class: "fill" },
    bar(counts, job.Stop ? 0 : job.GroupCountSum),
    h("span", { class: "words" }, shown),
  );
}

/** A filter expression for a text that a person typed, and a type. */
function expression({ text, type }) {
  const quoted = (words) => JSON.stringify(words);
  const literal = text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const parts = [];
  if (text) parts.push(`(Name matches ${quoted(`(?i)${literal}`)} or ID matches ${quoted(`(?i)${literal}`)})`);
  if (type) parts.push(`Type == ${quoted(type)}`);
  return parts.join(" and ");
}

/** A box that filters a list as one types. */
export function filterBox(words, visit) {
  const typed = (event) => {
    visit.state.text = event.target.value;
    visit.state.token = "";
    visit.state.before = [];
    clearTimeout(visit.state.typing);
    visit.state.typing = setTimeout(visit.refresh, TYPING_MS);
  };
  return h("input", {
    type: "search",
    "aria-label": words,
    placeholder: words,
    oninput: typed,
    value: visit.state.text,
  });
}

/** A choice that narrows a list. options: [[value, words]]. */
export function choice(words, name, options, visit) {
  const chosen = (event) => {
    visit.state[name] = event.target.value;
    visit.state.token = "";
    visit.state.before = [];
    visit.refresh();
  };
  return h(
    "select",
    { "aria-label": words, onchange: chosen, value: visit.state[name] },
    options.map(([value, shown]) => h("option", { value, selected: value === visit.state[name] }, shown)),
  );
}

export const paged = (query) => ({ text: query.get("filter") ?? "", type: "", status: "", token: "", before: [] });

export const jobsPage = {
  title: () => "Jobs",
  topics: () => ["Job", "Allocation", "Deployment"],
  state: paged,
  async load(api, _, state) {
    const query = {
      namespace: place.namespace,
      per_page: JOBS_SHOWN,
      next_token: state.token,
      filter: expression(state),
      reverse: true,
    };
    const { value, next } = await api.page("jobs/statuses", query);
    return { jobs: value ?? [], next };
  },
  view({ jobs, next }, _, visit) {
    const { state } = visit;
    const everywhere = place.namespace === "*";
    const rows = jobs.map((job) =>
      row(
        `${job.Namespace}/${job.ID}`,
        h("a", { class: "name", href: links.job(job.ID, job.Namespace) }, job.Name),
        badge(stateOf(job)),
        job.Type,
        everywhere ? job.Namespace : null,
        String(job.Priority),
        allocations(job),
        ago(job.SubmitTime),
      ),
    );
    const narrowed = state.text || state.type;
    const empty = narrowed
      ? nothing("No job fits what you look for.")
      : nothing("No jobs yet. Write a job file and run it:", "lepa job init\nlepa job run example.nomad.hcl");
    const columns = ["Name", "State", "Type", everywhere ? "Namespace" : "", ">Priority", "Allocations", "Submitted"];
    const turn = (token) => {
      state.token = token;
      visit.refresh();
    };
    return h(
      "div",
      {},
      headline(
        "Jobs",
        h("span", { class: "grow" }),
        choice(
          "Type",
          "type",
          [
            ["", "every type"],
            ["service", "service"],
            ["batch", "batch"],
            ["system", "system"],
            ["sysbatch", "sysbatch"],
          ],
          visit,
        ),
        filterBox("Filter by name", visit),
      ),
      table("Jobs", columns, rows, empty),
      pager(state, next, turn),
    );
  },
};
