// One allocation: its tasks, what they use, their ports, checks, events and logs.

import { Conversation, links, segment, write } from "./api.js";
import {
  ago,
  badge,
  button,
  facts,
  fill,
  h,
  headline,
  megahertz,
  mebibytes,
  moment,
  row,
  section,
  short,
  span,
  table,
} from "./dom.js";
import { confirmed } from "./talk.js";

const EVERY_MS = 4000;
const ALLOCATIONS_MAX = 1000;
const LOG_START = 32_768;
const LOG_MAX = 256_000;
const STREAMS = ["stdout", "stderr"];
const LIVE = ["running", "pending"];

/** Allocations, newest first. job, node: whether to say where each belongs; most: how many are shown. */
export function allocationTable(list, { job = true, node = true, most = ALLOCATIONS_MAX } = {}) {
  const sorted = [...list].sort((one, other) => other.CreateIndex - one.CreateIndex).slice(0, most);
  const columns = [
    "Allocation",
    job ? "Job" : "",
    "Group",
    "State",
    "Desired",
    node ? "Node" : "",
    ">Version",
    "Created",
    "Changed",
  ];
  return table(
    "Allocations",
    columns,
    sorted.map((alloc) =>
      row(
        alloc.ID,
        h(
          "a",
          { class: "name", href: links.allocation(alloc.ID) },
          h("code", {}, short(alloc.ID)),
          " ",
          h("span", { class: "dim" }, index(alloc.Name)),
        ),
        job ? h("a", { href: links.job(alloc.JobID, alloc.Namespace) }, alloc.JobID) : null,
        alloc.TaskGroup,
        [badge(stateOf(alloc)), failures(alloc) ?? healthOf(alloc)],
        alloc.DesiredStatus,
        node ? h("a", { href: links.node(alloc.NodeID) }, alloc.NodeName || short(alloc.NodeID)) : null,
        String(alloc.JobVersion ?? alloc.Job?.Version ?? "–"),
        ago(alloc.CreateTime),
        ago(alloc.ModifyTime),
      ),
    ),
    "No allocations yet. Evaluations and placement tell why.",
  );
}

const index = (name) => /\[\d+\]$/.exec(name ?? "")?.[0] ?? "";
const stateOf = (alloc) =>
  alloc.ClientStatus === "running" && alloc.DesiredStatus !== "run" ? "stopping" : alloc.ClientStatus;

/** Events that tell what was done about a failure, or before it, and never what failed. */
const HOUSEKEEPING = new Set([
  "Alloc Unhealthy",
  "Downloading Artifacts",
  "Killed",
  "Killing",
  "Not Restarting",
  "Received",
  "Restart Signaled",
  "Restarting",
  "Started",
  "Task Setup",
]);

/** The last event of a task that says what went wrong. */
const failureOf = (task) => (task.Events ?? []).findLast((event) => !HOUSEKEEPING.has(event.Type));

/** Why an allocation failed: the first of its failed tasks that tells. */
function failures(alloc) {
  if (alloc.ClientStatus !== "failed") return null;
  const told = Object.values(alloc.TaskStates ?? {})
    .filter((task) => task.Failed)
    .map(failureOf)
    .find(Boolean);
  return told ? h("span", { class: "dim why" }, ` ${told.DisplayMessage || told.Type}`) : null;
}

function healthOf(alloc) {
  const status = alloc.DeploymentStatus;
  if (!status) return null;
  const words = [status.Canary ? "canary" : "", status.Healthy === false ? "unhealthy" : ""].filter(Boolean).join(", ");
  return words ? h("span", { class: "dim" }, ` ${words}`) : null;
}

export const allocationPage = {
  title: ({ id }, data) => data?.alloc.Name ?? `Allocation ${short(id)}`,
  topics: ({ id }) => [`Allocation:${id}`],
  every: EVERY_MS,
  state: () => ({ task: "" }),
  async load(api, { id }) {
    const alloc = await api.get(`allocation/${segment(id)}`);
    const runs = LIVE.includes(alloc.ClientStatus);
    const [stats, checks] = runs
      ? await Promise.all([
          api.maybe(`client/allocation/${alloc.ID}/stats`),
          api.maybe(`client/allocation/${alloc.ID}/checks`),
        ])
      : [null, null];
    return { alloc, stats, checks };
  },
  view({ alloc, stats, checks }, _, visit) {
    const group = alloc.Job?.TaskGroups?.find((each) => each.Name === alloc.TaskGroup);
    return h(
      "div",
      {},
      h(
        "p",
        { class: "crumbs" },
        h("a", { href: links.page("jobs") }, "Jobs"),
        " / ",
        h("a", { href: links.job(alloc.JobID, alloc.Namespace) }, alloc.Job?.Name ?? alloc.JobID),
        " / ",
        alloc.TaskGroup,
      ),
      headline(alloc.Name, badge(stateOf(alloc)), healthOf(alloc), h("span", { class: "grow" }), actions(alloc, visit)),
      facts(
        ["Allocation", h("code", {}, alloc.ID)],
        ["Node", h("a", { href: links.node(alloc.NodeID) }, alloc.NodeName || short(alloc.NodeID))],
        ["Version", String(alloc.Job?.Version ?? "–")],
        ["Desired", alloc.DesiredStatus],
        ["Created", ago(alloc.CreateTime)],
        ["Changed", ago(alloc.ModifyTime)],
        alloc.PreviousAllocation
          ? ["Replaces", h("a", { href: links.allocation(alloc.PreviousAllocation) }, short(alloc.PreviousAllocation))]
          : null,
        alloc.NextAllocation
          ? ["Replaced by", h("a", { href: links.allocation(alloc.NextAllocation) }, short(alloc.NextAllocation))]
          : null,
      ),
      alloc.ClientDescription || alloc.DesiredDescription
        ? h("p", { class: "dim" }, [alloc.ClientDescription, alloc.DesiredDescription].filter(Boolean).join("; "))
        : null,
      section(
        "Tasks",
        table(
          "Tasks",
          ["Task", "State", "Last event", ">Restarts", "CPU", "Memory", ""],
          tasksOf(alloc, group).map((task) => taskRow(task, alloc, stats, visit)),
          "The node has not begun yet.",
        ),
      ),
      ports(alloc),
      checked(checks),
      logs(alloc, visit),
      section(
        "Events",
        table("Events", ["When", "Task", "Event", "What happened"], events(alloc), "Nothing has happened yet."),
      ),
    );
  },
  begin: follow,
  rest(visit) {
    visit.state.following?.abort();
    visit.shown = false;
  },
};

/** Tasks with their states, those that have not begun too. */
function tasksOf(alloc, group) {
  const names = new Set([...(group?.Tasks ?? []).map((task) => task.Name), ...Object.keys(alloc.TaskStates ?? {})]);
  return [...names].map((name) => ({
    name,
    driver: group?.Tasks?.find((task) => task.Name === name)?.Driver,
    ...alloc.TaskStates?.[name],
  }));
}

function taskRow(task, alloc, stats, visit) {
  const use = stats?.Tasks?.[task.name]?.ResourceUsage;
  const allotted = alloc.AllocatedResources?.Tasks?.[task.name];
  const state = task.State === "dead" ? (task.Failed ? "failed" : "complete") : (task.State ?? "pending");
  const last = (state === "failed" ? failureOf(task) : null) ?? (task.Events ?? []).at(-1);
  const cpu = allotted?.Cpu?.CpuShares ?? 0;
  const memory = allotted?.Memory?.MemoryMB ?? 0;
  const used = (use?.MemoryStats?.RSS || use?.MemoryStats?.Usage || 0) / 1_048_576;
  const restart = () =>
    visit.act(`${task.name} is restarted.`, () =>
      write("PUT", `client/allocation/${alloc.ID}/restart`, { TaskName: task.name }),
    );
  return row(
    task.name,
    [h("span", { class: "name" }, task.name), " ", h("span", { class: "dim" }, task.driver)],
    [
      badge(state),
      task.State === "running"
        ? h("span", { class: "dim" }, ` for ${span((Date.now() - moment(task.StartedAt)) / 1000)}`)
        : null,
    ],
    last ? last.DisplayMessage || last.Type : "–",
    String(task.Restarts ?? 0),
    use ? fill(use.CpuStats.TotalTicks, cpu, megahertz) : megahertz(cpu),
    use ? fill(used, memory, mebibytes) : mebibytes(memory),
    task.State === "running" ? button("Restart", restart, "quiet") : null,
  );
}

function actions(alloc, visit) {
  if (["complete", "failed", "lost"].includes(alloc.ClientStatus)) return null;
  const restart = async () => {
    if (await confirmed("Restart all its tasks?", "They are stopped and started again in place.", "Restart"))
      visit.act("The tasks are restarted.", () =>
        write("PUT", `client/allocation/${alloc.ID}/restart`, { AllTasks: true }),
      );
  };
  const stop = async () => {
    if (
      await confirmed("Stop this allocation?", "Its job places another one instead, maybe elsewhere.", "Stop it", {
        danger: true,
      })
    )
      visit.act("The allocation is being stopped.", () => write("PUT", `allocation/${alloc.ID}/stop`, {}));
  };
  return h("span", { class: "actions" }, button("Restart", restart), button("Stop", stop, "danger quiet"));
}

function ports(alloc) {
  const list = alloc.AllocatedResources?.Shared?.Ports ?? [];
  if (!list.length) return null;
  return section(
    "Ports",
    table(
      "Ports",
      ["Label", "Address", "In the group"],
      list.map((port) =>
        row(
          port.Label,
          h("span", { class: "name" }, port.Label),
          h("code", {}, `${port.HostIP.includes(":") ? `[${port.HostIP}]` : port.HostIP}:${port.Value}`),
          port.To > 0 ? h("code", {}, String(port.To)) : "–",
        ),
      ),
    ),
  );
}

function checked(checks) {
  const list = Object.values(checks ?? {});
  if (!list.length) return null;
  return section(
    "Checks",
    table(
      "Checks",
      ["Service", "Check", "Status", "Output", "Last"],
      list.map((check) =>
        row(
          check.ID,
          check.Service,
          check.Check,
          badge(check.Status),
          h("span", { class: "dim" }, check.Output),
          ago(check.Timestamp * 1e9),
        ),
      ),
    ),
  );
}

function events(alloc) {
  return Object.entries(alloc.TaskStates ?? {})
    .flatMap(([task, state]) => (state.Events ?? []).map((event) => ({ task, ...event })))
    .sort((one, other) => other.Time - one.Time)
    .map((event) =>
      row(
        `${event.task}${event.Time}${event.Type}`,
        ago(event.Time),
        event.task,
        event.Type,
        event.DisplayMessage || event.Message || "–",
      ),
    );
}

// Logs

function logs(alloc, visit) {
  const names = Object.keys(alloc.TaskStates ?? {});
  if (!names.length) return null;
  if (!names.includes(visit.state.task)) visit.state.task = names[0];
  const chosen = (event) => {
    visit.state.task = event.target.value;
    follow(visit.data, visit);
  };
  return section(
    null,
    h(
      "h2",
      { class: "with" },
      "Logs ",
      names.length > 1
        ? h(
            "select",
            { "aria-label": "Task", onchange: chosen, value: visit.state.task },
            names.map((name) => h("option", { value: name, selected: name === visit.state.task }, name)),
          )
        : h("span", { class: "dim" }, names[0]),
    ),
    h(
      "div",
      { class: "logs" },
      STREAMS.map((kind) =>
        h(
          "figure",
          {},
          h("figcaption", {}, kind),
          h("pre", {
            id: `log-${kind}`,
            class: "log",
            "data-kept": true,
            tabindex: "0",
            role: "log",
            "aria-label": `${kind} of ${visit.state.task}`,
          }),
        ),
      ),
    ),
  );
}

/** Follow both streams of the chosen task into their panes, from near their ends. */
function follow({ alloc }, visit) {
  visit.state.following?.abort();
  const control = new AbortController();
  visit.state.following = control;
  if (!visit.state.task) return;
  for (const kind of STREAMS) followOne(alloc, visit.state.task, kind, control.signal);
}

async function followOne(alloc, task, kind, signal) {
  const pane = document.getElementById(`log-${kind}`);
  if (!pane) return;
  const api = new Conversation(signal);
  const query = {
    task,
    type: kind,
    plain: true,
    origin: "end",
    offset: LOG_START,
    follow: LIVE.includes(alloc.ClientStatus),
  };
  const path = `client/fs/logs/${alloc.ID}`;
  const empty = query.follow ? "Nothing written yet." : "Nothing was written.";
  pane.replaceChildren(h("span", { class: "dim" }, empty));
  let begun = false;
  const take = (text) => {
    if (signal.aborted) return;
    const atEnd = pane.scrollHeight - pane.scrollTop - pane.clientHeight < 24;
    if (!begun) pane.replaceChildren();
    begun = true;
    pane.append(text);
    while (pane.textContent.length > LOG_MAX && pane.childNodes.length > 1) pane.firstChild.remove();
    if (atEnd) pane.scrollTop = pane.scrollHeight;
  };
  try {
    await api.text(path, query, take);
  } catch (error) {
    if (!signal.aborted) pane.append(h("span", { class: "dim" }, `\n${error.message}`));
  }
}
