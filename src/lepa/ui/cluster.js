// Servers, evaluations and the paths of variables.

import { links, place } from "./api.js";
import { ago, badge, h, headline, nothing, pager, plural, row, short, table } from "./dom.js";
import { choice, filterBox, paged } from "./jobs.js";

const SHOWN = 100;
const EVERY_MS = 5000;

export const serversPage = {
  title: () => "Servers",
  every: EVERY_MS,
  async load(api) {
    const [members, leader, health] = await Promise.all([
      api.get("agent/members"),
      api.maybe("status/leader"),
      api.maybe("operator/autopilot/health"),
    ]);
    return { members: members.Members ?? [], leader, health };
  },
  view({ members, leader, health }) {
    const known = new Map((health?.Servers ?? []).map((server) => [server.Name, server]));
    const rows = members.map((member) => {
      const address = `${member.Addr.includes(":") ? `[${member.Addr}]` : member.Addr}:${member.Tags?.port}`;
      const server = known.get(member.Name);
      const leads = server ? server.Leader : leader === address;
      return row(
        member.Name,
        [h("span", { class: "name" }, member.Name), leads ? [" ", badge("leader", "accent")] : null],
        badge(member.Status),
        server ? badge(server.Healthy ? "healthy" : "unhealthy") : "–",
        h("code", {}, address),
        member.Tags?.dc ?? "–",
        member.Tags?.region ?? "–",
        member.Tags?.build ?? "–",
        server?.LastContact ?? "–",
      );
    });
    const words = health
      ? health.Healthy
        ? `All is well. ${health.FailureTolerance ? `${plural(health.FailureTolerance, "server")} may be lost without harm.` : "None may be lost without harm."}`
        : "Not every server is healthy."
      : "";
    return h(
      "div",
      {},
      headline("Servers"),
      words ? h("p", { class: "lead" }, words) : null,
      leader
        ? null
        : h(
            "p",
            { class: "callout", "data-tone": "bad" },
            "There is no leader now: nothing can be changed until the servers have chosen one.",
          ),
      table(
        "Servers",
        ["Name", "Gossip", "Health", "Address", "Datacenter", "Region", "Version", "Last contact"],
        rows,
        "This agent knows no server.",
      ),
    );
  },
};

const TRIGGERS = {
  "job-register": "the job was submitted",
  "job-deregister": "the job was stopped",
  "node-update": "a node changed",
  "node-drain": "a node is drained",
  "alloc-stop": "an allocation was stopped",
  "alloc-failure": "an allocation failed",
  "retry-failed-alloc": "a failed allocation is tried again",
  "queued-allocs": "allocations wait for room",
  "deployment-watcher": "a deployment went on",
  "rolling-update": "a rolling update went on",
  "periodic-job": "its time came",
  "max-plan-attempts": "plans were refused too often",
  preemption: "more important work took its place",
  "job-scaling": "the job was scaled",
  "max-disconnect-timeout": "a node was away for too long",
  reconnect: "a node came back",
  scheduled: "it was put off",
  "failed-follow-up": "an evaluation failed before",
};

/** Why an evaluation could not place something, a sentence a group. */
export function reasons(evaluation) {
  return Object.entries(evaluation.FailedTGAllocs ?? {}).map(([group, metric]) => {
    const parts = [
      ...Object.entries(metric.ConstraintFiltered ?? {}).map(
        ([why, count]) => `${plural(count, "node")} ruled out by ${why}`,
      ),
      ...Object.entries(metric.DimensionExhausted ?? {}).map(
        ([what, count]) => `${plural(count, "node")} without enough ${what}`,
      ),
    ];
    const left = (evaluation.QueuedAllocations?.[group] ?? 0) || (metric.CoalescedFailures ?? 0) + 1;
    return `${group}: ${left} not placed: ${parts.join(", ") || (metric.NodesEvaluated ? `none of ${plural(metric.NodesEvaluated, "node")} fits` : "no node was in question")}`;
  });
}

/** Evaluations as a table. */
export function evaluationTable(list, { job = true } = {}) {
  const rows = list.map((each) => {
    const why = reasons(each);
    return row(
      each.ID,
      h("code", {}, short(each.ID)),
      job && each.JobID ? h("a", { href: links.job(each.JobID, each.Namespace) }, each.JobID) : job ? "–" : null,
      badge(each.Status),
      String(each.Priority),
      TRIGGERS[each.TriggeredBy] ?? each.TriggeredBy,
      why.length
        ? h(
            "ul",
            { class: "reasons" },
            why.map((words) => h("li", {}, words)),
          )
        : each.StatusDescription || (each.Status === "complete" ? "everything is placed" : "–"),
      ago(each.CreateTime),
    );
  });
  return table(
    "Evaluations",
    ["Evaluation", job ? "Job" : "", "Status", ">Priority", "Because", "Outcome", "Created"],
    rows,
    nothing("No evaluations. Each change of a job or a node makes one; old ones are removed after a while."),
  );
}

export const evaluationsPage = {
  title: () => "Evaluations",
  topics: () => ["Evaluation"],
  state: paged,
  async load(api, _, state) {
    const parts = [];
    if (state.status) parts.push(`Status == ${JSON.stringify(state.status)}`);
    if (state.text) parts.push(`JobID contains ${JSON.stringify(state.text)}`);
    const { value, next } = await api.page("evaluations", {
      namespace: place.namespace,
      per_page: SHOWN,
      next_token: state.token,
      reverse: true,
      filter: parts.join(" and "),
    });
    return { evaluations: value ?? [], next };
  },
  view({ evaluations, next }, _, visit) {
    const turn = (token) => {
      visit.state.token = token;
      visit.refresh();
    };
    return h(
      "div",
      {},
      headline(
        "Evaluations",
        h("span", { class: "grow" }),
        choice(
          "Status",
          "status",
          [
            ["", "every status"],
            ...["pending", "blocked", "complete", "failed", "canceled"].map((name) => [name, name]),
          ],
          visit,
        ),
        filterBox("Filter by job", visit),
      ),
      evaluationTable(evaluations),
      pager(visit.state, next, turn),
    );
  },
};

export const variablesPage = {
  title: () => "Variables",
  every: EVERY_MS * 3,
  state: paged,
  async load(api, _, state) {
    const { value, next } = await api.page("vars", {
      namespace: place.namespace,
      prefix: state.text,
      per_page: SHOWN,
      next_token: state.token,
    });
    return { variables: value ?? [], next };
  },
  view({ variables, next }, _, visit) {
    const turn = (token) => {
      visit.state.token = token;
      visit.refresh();
    };
    const rows = variables.map((each) =>
      row(
        `${each.Namespace}/${each.Path}`,
        h("code", { class: "name" }, each.Path),
        each.Namespace,
        each.Lock ? badge("locked", "wait") : "–",
        ago(each.ModifyTime),
      ),
    );
    return h(
      "div",
      {},
      headline("Variables", h("span", { class: "grow" }), filterBox("Begins with", visit)),
      h(
        "p",
        { class: "lead" },
        "Where secrets and settings are kept. Their values are not shown here: ",
        h("code", {}, "lepa var get PATH"),
        " does.",
      ),
      table(
        "Variables",
        ["Path", "Namespace", "Lock", "Changed"],
        rows,
        visit.state.text
          ? nothing("No path begins so.")
          : nothing("No variables yet.", "lepa var put app/config user=ann"),
      ),
      pager(visit.state, next, turn),
    );
  },
};
