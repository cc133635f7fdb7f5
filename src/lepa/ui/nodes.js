// Nodes: how full they are, which of them take work, and the whole cluster at one look.

import { links, segment, write } from "./api.js";
import { allocationTable } from "./allocation.js";
import {
  ago,
  badge,
  button,
  bytes,
  facts,
  fill,
  h,
  headline,
  megahertz,
  mebibytes,
  nothing,
  percent,
  plural,
  row,
  section,
  short,
  span,
  table,
} from "./dom.js";
import { filterBox } from "./jobs.js";
import { confirmed } from "./talk.js";

const EVERY_MS = 6000;
const LIVE = 'ClientStatus == "running" or ClientStatus == "pending"';
const GOLDEN_ANGLE = 137.508;
const HOUR_NS = 3_600_000_000_000;

/** What an allocation has of its node: MHz and MiB. */
export function holds(alloc) {
  const tasks = Object.values(alloc.AllocatedResources?.Tasks ?? {});
  return {
    cpu: tasks.reduce((sum, task) => sum + (task.Cpu?.CpuShares ?? 0), 0),
    memory: tasks.reduce((sum, task) => sum + (task.Memory?.MemoryMB ?? 0), 0),
  };
}

/** What a node has to give: MHz and MiB, less what is kept back. */
function room(node) {
  const has = node.NodeResources ?? {};
  const kept = node.ReservedResources ?? {};
  return {
    cpu: (has.Cpu?.CpuShares ?? 0) - (kept.Cpu?.CpuShares ?? 0),
    memory: (has.Memory?.MemoryMB ?? 0) - (kept.Memory?.MemoryMB ?? 0),
  };
}

const usable = (node) => (node.Drain ? "draining" : node.SchedulingEligibility);

/** Every node with its live allocations, and what they hold. */
async function loadAll(api) {
  const [nodes, allocations] = await Promise.all([
    api.list("nodes", { resources: true }),
    api.list("allocations", { namespace: "*", resources: true, filter: LIVE }),
  ]);
  const on = new Map(nodes.found.map((node) => [node.ID, []]));
  for (const alloc of allocations.found) on.get(alloc.NodeID)?.push({ ...alloc, ...holds(alloc) });
  const found = nodes.found.map((node) => {
    const list = on.get(node.ID);
    const sum = (name) => list.reduce((total, alloc) => total + alloc[name], 0);
    return { ...node, room: room(node), allocations: list, used: { cpu: sum("cpu"), memory: sum("memory") } };
  });
  return { nodes: found.sort((one, other) => one.Name.localeCompare(other.Name)), cut: nodes.cut || allocations.cut };
}

const tooMany = (cut) =>
  cut ? h("p", { class: "dim" }, "There are more than these pages add up: the figures are those of a part.") : null;

export const nodesPage = {
  title: () => "Nodes",
  topics: () => ["Node"],
  every: EVERY_MS,
  state: () => ({ text: "" }),
  load: loadAll,
  view({ nodes, cut }, _, visit) {
    const text = (visit.state.text ?? "").toLowerCase();
    const shown = nodes.filter((node) =>
      [node.Name, node.ID, node.Datacenter, node.NodeClass, node.NodePool].some((each) =>
        each.toLowerCase().includes(text),
      ),
    );
    return h(
      "div",
      {},
      headline("Nodes", h("span", { class: "grow" }), filterBox("Filter by name, datacenter, pool", visit)),
      tooMany(cut),
      table(
        "Nodes",
        [
          "Name",
          "Status",
          "Takes work",
          "Datacenter",
          "Pool",
          ">Allocations",
          "CPU allotted",
          "Memory allotted",
          "Address",
        ],
        shown.map((node) =>
          row(
            node.ID,
            h(
              "a",
              { class: "name", href: links.node(node.ID) },
              node.Name,
              " ",
              h("code", { class: "dim" }, short(node.ID)),
            ),
            badge(node.Status),
            badge(usable(node)),
            node.Datacenter,
            node.NodePool,
            String(node.allocations.length),
            fill(node.used.cpu, node.room.cpu, megahertz),
            fill(node.used.memory, node.room.memory, mebibytes),
            h("code", {}, node.Address),
          ),
        ),
        nodes.length
          ? nothing("No node fits what you look for.")
          : nothing("No nodes yet. Start an agent with a client:", "lepa agent -config client.hcl"),
      ),
    );
  },
};

export const nodePage = {
  title: ({ id }, data) => data?.node.Name ?? `Node ${short(id)}`,
  topics: ({ id }) => [`Node:${id}`, "Allocation"],
  every: EVERY_MS,
  async load(api, { id }) {
    const node = await api.get(`node/${segment(id)}`);
    const [allocations, stats] = await Promise.all([
      api.maybe(`node/${node.ID}/allocations`, {}, []),
      node.Status === "ready" ? api.maybe("client/stats", { node_id: node.ID }) : null,
    ]);
    return { node, allocations, stats };
  },
  view({ node, allocations, stats }, _, visit) {
    const live = allocations.filter((alloc) => ["running", "pending"].includes(alloc.ClientStatus));
    const used = live
      .map(holds)
      .reduce((sum, each) => ({ cpu: sum.cpu + each.cpu, memory: sum.memory + each.memory }), { cpu: 0, memory: 0 });
    const has = room(node);
    return h(
      "div",
      {},
      h("p", { class: "crumbs" }, h("a", { href: links.page("clients") }, "Nodes"), " / ", node.Datacenter),
      headline(node.Name, badge(node.Status), badge(usable(node)), h("span", { class: "grow" }), actions(node, visit)),
      facts(
        ["Node", h("code", {}, node.ID)],
        ["Address", h("code", {}, node.HTTPAddr)],
        ["Datacenter", node.Datacenter],
        ["Pool", node.NodePool],
        ["Class", node.NodeClass || "–"],
        ["Cores", String(node.NodeResources?.Cpu?.TotalCpuCores ?? "–")],
        stats ? ["Up for", span(stats.Uptime)] : null,
      ),
      node.StatusDescription ? h("p", { class: "dim" }, node.StatusDescription) : null,
      section(
        "Room",
        h(
          "dl",
          { class: "meters" },
          meter("CPU allotted", fill(used.cpu, has.cpu, megahertz)),
          meter("Memory allotted", fill(used.memory, has.memory, mebibytes)),
          stats ? meter("CPU in use", fill(busy(stats), 1)) : null,
          stats ? meter("Memory in use", fill(stats.Memory.Used, stats.Memory.Total, bytes)) : null,
          stats?.AllocDirStats?.Size
            ? meter("Disk in use", fill(stats.AllocDirStats.Used, stats.AllocDirStats.Size, bytes))
            : null,
        ),
      ),
      section(
        "Allocations",
        allocations.length ? allocationTable(allocations, { node: false }) : nothing("Nothing was placed here yet."),
      ),
      section(
        "Drivers",
        table(
          "Drivers",
          ["Driver", "Status", "What it says"],
          Object.entries(node.Drivers ?? {}).map(([name, driver]) =>
            row(
              name,
              h("span", { class: "name" }, name),
              badge(driver.Healthy ? "healthy" : driver.Detected ? "unhealthy" : "not here"),
              h("span", { class: "dim" }, driver.HealthDescription),
            ),
          ),
        ),
      ),
      section(
        "Events",
        table(
          "Events",
          ["When", "Part", "What happened"],
          [...(node.Events ?? [])]
            .reverse()
            .map((event) =>
              row(`${event.Timestamp}${event.Message}`, ago(event.Timestamp), event.Subsystem, event.Message),
            ),
        ),
      ),
      h("details", {}, h("summary", {}, "Attributes"), facts(...Object.entries(node.Attributes ?? {}).sort())),
      Object.keys(node.Meta ?? {}).length
        ? h("details", {}, h("summary", {}, "Meta"), facts(...Object.entries(node.Meta).sort()))
        : null,
    );
  },
};

const meter = (name, shown) => h("div", {}, h("dt", {}, name), h("dd", {}, shown));

/** The share of all its cores' time that a host is busy. */
function busy(stats) {
  const cores = stats.CPU ?? [];
  return cores.length ? cores.reduce((sum, core) => sum + core.TotalPercent, 0) / cores.length / 100 : 0;
}

function actions(node, visit) {
  const put = (what, body) => () => write("PUT", `node/${node.ID}/${what}`, { NodeID: node.ID, ...body });
  const eligible = node.SchedulingEligibility === "eligible";
  const drain = async () => {
    if (
      await confirmed(
        `Drain ${node.Name}?`,
        "Its allocations move to other nodes, and it takes none any more. What has not moved within an hour is stopped.",
        "Drain",
        { danger: true },
      )
    )
      visit.act(
        `${node.Name} is being drained.`,
        put("drain", { DrainSpec: { Deadline: HOUR_NS, IgnoreSystemJobs: false }, MarkEligible: false }),
      );
  };
  const stay = () => visit.act("The drain is cancelled.", put("drain", { DrainSpec: null, MarkEligible: true }));
  const toggle = () =>
    visit.act(
      eligible ? `${node.Name} takes nothing new.` : `${node.Name} takes work again.`,
      put("eligibility", { Eligibility: eligible ? "ineligible" : "eligible" }),
    );
  return h(
    "span",
    { class: "actions" },
    node.Drain
      ? button("Stop the drain", stay)
      : [button(eligible ? "Take no more" : "Take work again", toggle), button("Drain", drain, "danger quiet")],
  );
}

// Topology

/** A colour that is a job's own, always the same. */
function hue(text) {
  let sum = 7;
  for (const letter of text) sum = (sum * 31 + letter.codePointAt(0)) % 1_000_003;
  return Math.round((sum * GOLDEN_ANGLE) % 360);
}

function packed(node, name, say) {
  const whole = Math.max(node.room[name], node.used[name], 1);
  return h(
    "div",
    { class: "packed" },
    h("span", { class: "what" }, name === "cpu" ? "CPU" : "Mem"),
    h(
      "span",
      { class: "lane" },
      node.allocations.map((alloc) => {
        const said = `${alloc.Name}: ${say(alloc[name])}`;
        const style = {
          width: `${(100 * alloc[name]) / whole}%`,
          "--hue": String(hue(`${alloc.Namespace}/${alloc.JobID}`)),
        };
        return h("a", {
          href: links.allocation(alloc.ID),
          title: said,
          "aria-label": said,
          style,
          class: alloc.ClientStatus === "pending" ? "pending" : null,
        });
      }),
    ),
    h("span", { class: "share" }, percent(node.used[name] / whole)),
  );
}

export const topologyPage = {
  title: () => "Topology",
  topics: () => ["Node"],
  every: EVERY_MS,
  load: loadAll,
  view({ nodes, cut }) {
    const ready = nodes.filter((node) => node.Status === "ready");
    const sum = (of, name) => ready.reduce((total, node) => total + node[of][name], 0);
    const centers = [...new Set(nodes.map((node) => node.Datacenter))].sort();
    const jobs = new Map(
      nodes.flatMap((node) => node.allocations.map((alloc) => [`${alloc.Namespace}/${alloc.JobID}`, alloc])),
    );
    if (!nodes.length)
      return h(
        "div",
        {},
        headline("Topology"),
        nothing("No nodes yet. Start an agent with a client:", "lepa agent -config client.hcl"),
      );
    return h(
      "div",
      {},
      headline(
        "Topology",
        h(
          "span",
          { class: "dim" },
          `${plural(nodes.length, "node")}, ${plural(
            nodes.reduce((total, node) => total + node.allocations.length, 0),
            "allocation",
          )}`,
        ),
      ),
      tooMany(cut),
      h(
        "dl",
        { class: "meters" },
        meter("CPU allotted", fill(sum("used", "cpu"), sum("room", "cpu"), megahertz)),
        meter("Memory allotted", fill(sum("used", "memory"), sum("room", "memory"), mebibytes)),
      ),
      centers.map((center) =>
        section(
          center || "no datacenter",
          h(
            "div",
            { class: "boxes" },
            nodes
              .filter((node) => node.Datacenter === center)
              .map((node) =>
                h(
                  "article",
                  { class: "box", "data-key": node.ID, "data-tone": node.Status === "ready" ? null : "bad" },
                  h(
                    "h3",
                    {},
                    h("a", { href: links.node(node.ID) }, node.Name),
                    h("span", { class: "grow" }),
                    node.Status === "ready" && usable(node) === "eligible"
                      ? null
                      : badge(node.Status === "ready" ? usable(node) : node.Status),
                  ),
                  h(
                    "p",
                    { class: "dim" },
                    `${plural(node.allocations.length, "allocation")} · ${megahertz(node.room.cpu)} · ${mebibytes(node.room.memory)}`,
                  ),
                  packed(node, "cpu", megahertz),
                  packed(node, "memory", mebibytes),
                ),
              ),
          ),
        ),
      ),
      h(
        "ul",
        { class: "legend" },
        [...jobs]
          .sort()
          .slice(0, 24)
          .map(([key, alloc]) =>
            h(
              "li",
              {},
              h("span", { class: "swatch", style: { "--hue": String(hue(key)) } }),
              h("a", { href: links.job(alloc.JobID, alloc.Namespace) }, alloc.JobID),
            ),
          ),
      ),
    );
  },
};
