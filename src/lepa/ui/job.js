// One job: its groups, its deployment, where its allocations are and why, its versions.

import { links, segment, write } from "./api.js";
import { allocationTable } from "./allocation.js";
import { evaluationTable } from "./cluster.js";
import {
  ago,
  badge,
  bar,
  button,
  facts,
  h,
  headline,
  megahertz,
  mebibytes,
  nothing,
  plural,
  row,
  section,
  table,
  tabs,
} from "./dom.js";
import { stateOf } from "./jobs.js";
import { confirmed } from "./talk.js";

const NODES_EXPLAINED = 50;
const ALLOCATIONS_SHOWN = 20;
const RUNS_SHOWN = 20;
const VERDICT_TONES = {
  chosen: "good",
  fits: "good",
  exhausted: "warn",
  closed: "warn",
  filtered: "plain",
  "not ready": "bad",
  elsewhere: "plain",
};
const SUMMARY = [
  ["Queued", "queued"],
  ["Starting", "starting"],
  ["Running", "running"],
  ["Failed", "failed"],
  ["Lost", "lost"],
  ["Unknown", "unknown"],
  ["Complete", "complete"],
];

function named(text) {
  const at = text.lastIndexOf("@");
  return at < 0 ? { id: text, namespace: "default" } : { id: text.slice(0, at), namespace: text.slice(at + 1) };
}

const path = (id, ...rest) => ["job", segment(id), ...rest].join("/");

export const jobPage = {
  title: ({ id }) => named(id).id,
  topics({ id }) {
    const job = named(id).id;
    return [...["Job", "Allocation", "Deployment", "Evaluation"].map((topic) => `${topic}:${job}`), "Node"];
  },
  async load(api, { id: text, part }) {
    const { id, namespace } = named(text);
    const query = { namespace };
    const read = (...rest) => api.maybe(path(id, ...rest), query);
    const job = await api.get(path(id), query);
    const parts = {
      "": async () => {
        const [summary, deployment, allocations, status] = await Promise.all([
          read("summary"),
          read("deployment"),
          read("allocations"),
          api.maybe("jobs/statuses", { namespace, filter: `ID == ${JSON.stringify(id)}` }),
        ]);
        const waits = Object.values(summary?.Summary ?? {}).some((group) => group.Queued > 0);
        const explained = waits ? await read("explain") : null;
        const runs = job.Periodic || job.ParameterizedJob ? await newestRuns(api, id, namespace) : [];
        return { summary, deployment, allocations, explained, runs, status: status?.[0] };
      },
      allocations: async () => ({ allocations: await read("allocations") }),
      evaluations: async () => ({ evaluations: await read("evaluations") }),
      versions: async () => ({ versions: await api.get(path(id, "versions"), { ...query, diffs: true }) }),
      placement: async () => ({ explained: await api.get(path(id, "explain"), { ...query, nodes: NODES_EXPLAINED }) }),
      definition: async () => ({
        submission: await api.maybe(path(id, "submission"), { ...query, version: job.Version }),
      }),
    };
    return { job, ...(await (parts[part ?? ""] ?? parts[""])()) };
  },
  view(data, { part }, visit) {
    const { job } = data;
    const shown = { allocations, evaluations, versions, placement, definition }[part] ?? overview;
    const to = (name) => links.job(job.ID, job.Namespace, name);
    return h(
      "div",
      {},
      h("p", { class: "crumbs" }, h("a", { href: links.page("jobs") }, "Jobs"), " / ", job.Namespace),
      headline(
        job.Name,
        data.status ? badge(stateOf(data.status)) : badge(job.Stop ? "stopped" : job.Status),
        h("span", { class: "grow" }),
        actions(job, visit),
      ),
      tabs(
        [
          ["Overview", to("")],
          ["Allocations", to("allocations")],
          ["Placement", to("placement")],
          ["Evaluations", to("evaluations")],
          ["Versions", to("versions")],
          ["Definition", to("definition")],
        ],
        to(part ?? ""),
      ),
      shown(data, visit),
    );
  },
};

/** Jobs that a periodic or parameterized one has made, the newest first. */
async function newestRuns(api, id, namespace) {
  const filter = `ParentID == ${JSON.stringify(id)}`;
  const query = { namespace, filter, include_children: true, reverse: true, per_page: RUNS_SHOWN };
  return (await api.maybe("jobs/statuses", query)) ?? [];
}

function actions(job, visit) {
  const query = { namespace: job.Namespace };
  const stop = async () => {
    if (
      await confirmed(
        `Stop ${job.Name}?`,
        "All its allocations are stopped. The job is kept and can be started again.",
        "Stop the job",
        { danger: true },
      )
    )
      visit.act(`${job.Name} is being stopped.`, () => write("DELETE", path(job.ID), undefined, query));
  };
  const start = () =>
    visit.act(`${job.Name} is being started.`, () =>
      write(
        "POST",
        path(job.ID),
        { Job: { ...job, Stop: false }, EnforceIndex: true, JobModifyIndex: job.JobModifyIndex },
        query,
      ),
    );
  const force = () => visit.act("It runs now.", () => write("POST", path(job.ID, "periodic", "force"), {}, query));
  return h(
    "span",
    { class: "actions" },
    job.Periodic && !job.Stop ? button("Run now", force) : null,
    job.Stop ? button("Start", start, "main") : button("Stop", stop, "danger quiet"),
  );
}

// Overview

function overview({ job, summary, deployment, allocations: found, explained, runs }, visit) {
  const groups = summary?.Summary ?? {};
  const total = (name) => Object.values(groups).reduce((sum, group) => sum + group[name], 0);
  const parts = SUMMARY.map(([name, words]) => ({ name: words, count: total(name) }));
  const children = summary?.Children ?? {};
  const parent = job.Periodic || job.ParameterizedJob;
  return h(
    "div",
    {},
    facts(
      ["Type", job.Type],
      ["Priority", String(job.Priority)],
      ["Version", String(job.Version)],
      ["Datacenters", (job.Datacenters ?? []).join(", ")],
      ["Node pool", job.NodePool],
      job.Periodic ? ["Runs at", [job.Periodic.Spec, ...(job.Periodic.Specs ?? [])].filter(Boolean).join(", ")] : null,
      job.ParentID ? ["Belongs to", h("a", { href: links.job(job.ParentID, job.Namespace) }, job.ParentID)] : null,
      ["Submitted", ago(job.SubmitTime)],
    ),
    job.UI?.Description ? h("p", { class: "lead" }, job.UI.Description) : null,
    outside(job.UI?.Links),
    parent
      ? section(
          "Runs",
          legend(
            [
              ["pending", children.Pending],
              ["running", children.Running],
              ["dead", children.Dead],
            ].map(([name, count]) => ({ name, count: count ?? 0 })),
          ),
          runs.length ? runTable(runs) : null,
        )
      : section("Allocations by state", bar(parts), legend(parts)),
    explained ? waiting(explained, job) : null,
    deployment ? deployed(deployment, job, visit) : null,
    section(
      "Groups",
      table(
        "Groups",
        ["Group", "Count", "State", "CPU", "Memory", "Tasks"],
        (job.TaskGroups ?? []).map((group) => groupRow(group, groups[group.Name], job, visit)),
      ),
    ),
    parent
      ? null
      : section(
          "Newest allocations",
          allocationTable(found ?? [], { job: false, most: ALLOCATIONS_SHOWN }),
          (found ?? []).length > ALLOCATIONS_SHOWN
            ? h(
                "p",
                {},
                h("a", { href: links.job(job.ID, job.Namespace, "allocations") }, `All ${found.length} allocations`),
              )
            : null,
        ),
    Object.keys(job.Meta ?? {}).length
      ? section("Meta", facts(...Object.entries(job.Meta).map(([name, value]) => [name, value])))
      : null,
  );
}

function runTable(runs) {
  const rows = runs.map((run) =>
    row(
      run.ID,
      h("a", { class: "name", href: links.job(run.ID, run.Namespace) }, run.ID),
      badge(stateOf(run)),
      ago(run.SubmitTime),
    ),
  );
  return h("div", { class: "below" }, table("Newest runs", ["Run", "State", "Began"], rows));
}

/** Links of a job to elsewhere: only those that a browser opens as pages. */
function outside(list) {
  const safe = (list ?? []).filter((link) => /^https?:\/\//i.test(link.URL ?? ""));
  return safe.length
    ? h(
        "p",
        { class: "links" },
        safe.map((link) =>
          h("a", { href: link.URL, target: "_blank", rel: "noopener noreferrer" }, link.Label || link.URL),
        ),
      )
    : null;
}

function legend(parts) {
  return h(
    "ul",
    { class: "legend" },
    parts.map((part) =>
      h("li", { class: part.count ? null : "dim" }, badge(part.name), h("b", {}, String(part.count))),
    ),
  );
}

function groupRow(group, summary, job, visit) {
  const tasks = group.Tasks ?? [];
  const sum = (name) => tasks.reduce((total, task) => total + (task.Resources?.[name] ?? 0), 0);
  const parts = SUMMARY.map(([name, words]) => ({ name: words, count: summary?.[name] ?? 0 }));
  const said = parts
    .filter((part) => part.count && part.name !== "complete")
    .map((part) => `${part.count} ${part.name}`)
    .join(", ");
  return row(
    group.Name,
    h("span", { class: "name" }, group.Name),
    job.Type === "service" || job.Type === "batch" ? scaler(group, job, visit) : "every node",
    h("span", { class: "fill" }, bar(parts), h("span", { class: "words" }, said || "–")),
    megahertz(sum("CPU")),
    mebibytes(sum("MemoryMB")),
    tasks.map((task) => h("span", { class: "chip" }, `${task.Name} `, h("span", { class: "dim" }, task.Driver))),
  );
}

function scaler(group, job, visit) {
  const scaled = (count) =>
    visit.act(`${group.Name} is scaled to ${count}.`, () =>
      write(
        "PUT",
        path(job.ID, "scale"),
        { Count: count, Target: { Group: group.Name, Job: job.ID }, Message: "scaled in the pages" },
        { namespace: job.Namespace },
      ),
    );
  const still = job.Stop || job.Periodic || job.ParameterizedJob;
  return h(
    "span",
    { class: "scaler" },
    button("−", () => scaled(group.Count - 1), "quiet", {
      disabled: still || group.Count < 1,
      "aria-label": `One ${group.Name} less`,
    }),
    h("b", {}, String(group.Count)),
    button("+", () => scaled(group.Count + 1), "quiet", { disabled: still, "aria-label": `One ${group.Name} more` }),
  );
}

function waiting(explained, job) {
  return h(
    "section",
    { class: "callout", "data-tone": "warn" },
    h("h2", {}, "Waiting for room"),
    explained.Waiting ? h("p", {}, explained.Waiting) : null,
    explained.Groups.map((group) =>
      h(
        "div",
        {},
        h("p", {}, h("b", {}, group.Name), `: ${group.Summary}`),
        h(
          "ul",
          {},
          group.Nodes.filter((node) => node.Reasons.length && !["chosen", "fits"].includes(node.Verdict))
            .slice(0, 3)
            .map((node) => h("li", {}, h("b", {}, node.NodeName), `: ${node.Reasons.join("; ")}`)),
        ),
      ),
    ),
    h(
      "p",
      {},
      h("a", { href: links.job(job.ID, job.Namespace, "placement") }, "Every node, and what speaks against it"),
    ),
  );
}

function deployed(deployment, job, visit) {
  const active = ["running", "paused", "pending", "blocked", "unblocking", "initializing"].includes(deployment.Status);
  const groups = Object.entries(deployment.TaskGroups ?? {});
  const promotable = active && groups.some(([, group]) => group.DesiredCanaries > 0 && !group.Promoted);
  const query = { namespace: job.Namespace };
  const promote = () =>
    visit.act("The canaries are promoted.", () =>
      write("PUT", `deployment/promote/${deployment.ID}`, { DeploymentID: deployment.ID, All: true }, query),
    );
  const fail = async () => {
    if (
      await confirmed(
        "Fail this deployment?",
        "It ends here; a group with auto_revert goes back to the last stable version.",
        "Fail it",
        { danger: true },
      )
    )
      visit.act("The deployment has failed, as you wanted.", () =>
        write("PUT", `deployment/fail/${deployment.ID}`, {}, query),
      );
  };
  const rows = groups.map(([name, group]) =>
    row(
      name,
      h("span", { class: "name" }, name),
      h(
        "span",
        { class: "fill" },
        bar(
          [
            { name: "healthy", count: group.HealthyAllocs },
            { name: "unhealthy", count: group.UnhealthyAllocs },
            {
              name: "placed",
              count: Math.max(0, group.PlacedAllocs - group.HealthyAllocs - group.UnhealthyAllocs),
              tone: "wait",
            },
          ],
          group.DesiredTotal,
        ),
        h("span", { class: "words" }, `${group.HealthyAllocs}/${group.DesiredTotal} healthy`),
      ),
      String(group.UnhealthyAllocs),
      group.DesiredCanaries
        ? `${(group.PlacedCanaries ?? []).length}/${group.DesiredCanaries}${group.Promoted ? ", promoted" : ""}`
        : "–",
    ),
  );
  return section(
    null,
    h(
      "h2",
      { class: "with" },
      "Latest deployment ",
      badge(deployment.Status),
      h("span", { class: "dim" }, `${deployment.StatusDescription}, version ${deployment.JobVersion}`),
      h("span", { class: "grow" }),
      promotable ? button("Promote", promote, "main") : null,
      active ? button("Fail", fail, "danger quiet") : null,
    ),
    table("Groups of the deployment", ["Group", "Healthy", ">Unhealthy", "Canaries"], rows),
  );
}

// The other parts

function allocations({ allocations: found }) {
  const list = found ?? [];
  const table = allocationTable(list, { job: false });
  const rows = table.querySelectorAll("tbody tr").length;
  return h(
    "div",
    {},
    table,
    rows < list.length ? h("p", { class: "dim" }, `The newest ${rows} of ${list.length}.`) : null,
  );
}

function evaluations({ evaluations: found }) {
  return evaluationTable(found ?? [], { job: false });
}

function placement({ explained }) {
  return h(
    "div",
    {},
    h("p", { class: "lead" }, "What placing each group now would make of every node. Nothing is changed by looking."),
    explained.Waiting ? h("p", {}, explained.Waiting) : null,
    explained.Groups.map((group) =>
      section(
        `Group ${group.Name}`,
        h("p", {}, group.Summary),
        table(
          `Nodes for ${group.Name}`,
          ["Node", "Verdict", "Why", ">Score", ">Runs"],
          group.Nodes.map((node) =>
            row(
              node.NodeID,
              h("a", { class: "name", href: links.node(node.NodeID) }, node.NodeName),
              badge(node.Verdict, VERDICT_TONES[node.Verdict]),
              h(
                "ul",
                { class: "reasons" },
                node.Reasons.map((reason) => h("li", {}, reason)),
              ),
              node.Rank ? node.Score.toFixed(3) : "–",
              String(node.Running),
            ),
          ),
          "No node was looked at.",
        ),
        group.NodesOmitted ? h("p", { class: "dim" }, `${plural(group.NodesOmitted, "more node")} not shown.`) : null,
      ),
    ),
    section(
      "As it was decided",
      table(
        "Recorded decisions",
        ["When", "Group", "Allocation", "Node", "What was written down"],
        explained.Recorded.map((each) =>
          row(
            each.AllocationID || `${each.EvalID}${each.Group}`,
            ago(each.Time),
            each.Group,
            each.AllocationID ? h("a", { href: links.allocation(each.AllocationID) }, each.Name) : "not placed",
            each.NodeID ? h("a", { href: links.node(each.NodeID) }, each.NodeName) : "–",
            h(
              "ul",
              { class: "reasons" },
              each.Reasons.map((reason) => h("li", {}, reason)),
            ),
          ),
        ),
        "Nothing is recorded any more.",
      ),
    ),
  );
}

function versions({ job, versions: { Versions: list, Diffs: diffs } }, visit) {
  const revert = async (version) => {
    if (
      await confirmed(
        `Back to version ${version}?`,
        "Its definition becomes the newest version and is deployed.",
        "Revert",
      )
    )
      visit.act(`Version ${version} is being deployed again.`, () =>
        write("POST", path(job.ID, "revert"), { JobID: job.ID, JobVersion: version }, { namespace: job.Namespace }),
      );
  };
  const rows = list.map((each, at) =>
    row(
      String(each.Version),
      h("b", {}, `#${each.Version}`),
      ago(each.SubmitTime),
      [
        each.Version === job.Version ? badge("current", "accent") : null,
        each.Stable ? badge("stable", "good") : null,
        each.VersionTag ? h("span", { class: "chip" }, each.VersionTag.Name) : null,
      ],
      changes(diffs?.[at]),
      each.Version === job.Version ? null : button("Revert", () => revert(each.Version), "quiet"),
    ),
  );
  return table("Versions", ["Version", "Submitted", "", "Changed since the one before", ""], rows);
}

/** The changed fields of a version, as lines. */
function changes(diff) {
  const lines = [];
  const walk = (node, where) => {
    for (const field of node.Fields ?? [])
      if (field.Type !== "None") lines.push([`${where}${field.Name}`, field.Old, field.New]);
    for (const inner of node.Objects ?? []) walk(inner, `${where}${inner.Name}.`);
    for (const group of node.TaskGroups ?? []) walk(group, `${where}${group.Name}.`);
    for (const task of node.Tasks ?? []) walk(task, `${where}${task.Name}.`);
  };
  if (diff) walk(diff, "");
  if (!lines.length) return "–";
  const shown = lines
    .slice(0, 8)
    .map(([name, old, now]) =>
      h("li", {}, h("code", {}, name), old ? [" ", h("del", {}, old)] : null, now ? [" ", h("ins", {}, now)] : null),
    );
  return h(
    "ul",
    { class: "reasons" },
    shown,
    lines.length > 8 ? h("li", { class: "dim" }, `and ${lines.length - 8} more`) : null,
  );
}

function definition({ job, submission }) {
  const json = JSON.stringify(job, null, 2);
  return h(
    "div",
    {},
    submission?.Source
      ? section("As it was submitted", h("pre", { class: "source" }, submission.Source))
      : nothing("The text that was submitted is not kept for this version."),
    h("details", {}, h("summary", {}, "As JSON, with every default"), h("pre", { class: "source" }, json)),
  );
}
