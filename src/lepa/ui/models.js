// Models that are served: the jobs of serving clusters, and what their query frontends say of latency and throughput.

import { links, place, segment } from "./api.js";
import { badge, bar, facts, h, headline, nothing, row, section, table } from "./dom.js";
import { stateOf, tally } from "./jobs.js";

const MODEL_JOBS_MAX = 1000;
const EVERY_MS = 5000;

/** A job of a serving cluster with its meta, which says what it is for. */
async function described(api, stub) {
  const job = await api.maybe(`job/${segment(stub.ID)}`, { namespace: stub.Namespace });
  return { ...stub, meta: job?.Meta ?? {} };
}

/** Rows of all query frontends as one each: each query is asked of one of them, and the slowest tells the latency. */
function joined(frontends, kind, key) {
  const found = new Map();
  for (const row of frontends.flatMap((each) => each[kind])) {
    const known = found.get(key(row));
    if (!known) {
      found.set(key(row), { ...row });
      continue;
    }
    for (const name of ["predictions", "defaults", "failures", "queued", "rate_1min"]) known[name] += row[name] ?? 0;
    for (const name of ["p50_ms", "p99_ms", "replicas", "batch_p50", "batch_limit"])
      known[name] = Math.max(known[name] ?? 0, row[name] ?? 0);
  }
  return found;
}

export const modelsPage = {
  title: () => "Models",
  topics: () => ["Job", "Allocation"],
  every: EVERY_MS,
  async load(api) {
    const { value } = await api.page("jobs/statuses", {
      namespace: place.namespace,
      filter: 'ID matches "^clipper-"',
      per_page: MODEL_JOBS_MAX,
    });
    const clusters = new Map();
    for (const stub of value ?? []) {
      const job = await described(api, stub);
      const name = job.meta.clipper_cluster;
      if (!name || job.Stop) continue;
      const key = `${job.Namespace}/${name}`;
      if (!clusters.has(key)) clusters.set(key, { name, namespace: job.Namespace, models: [], parts: [] });
      clusters.get(key)[job.meta.model_name ? "models" : "parts"].push(job);
    }
    for (const cluster of clusters.values())
      cluster.frontends = await api.maybe(`serving/${segment(cluster.name)}`, { namespace: cluster.namespace }, []);
    return { clusters: [...clusters.values()].sort((one, other) => one.name.localeCompare(other.name)) };
  },
  view({ clusters }) {
    const empty = nothing(
      "No models are served yet. Deploy one; its serving cluster is started with it:",
      "lepa model deploy model.pkl -app digits",
    );
    return h("div", {}, headline("Models"), clusters.length ? clusters.map(shown) : empty);
  },
};

function replicas(job) {
  const running = job.Allocs.filter((alloc) => alloc.ClientStatus === "running").length;
  return h(
    "span",
    { class: "fill" },
    bar(tally(job.Allocs.map((alloc) => alloc.ClientStatus)), job.GroupCountSum),
    h("span", { class: "words" }, `${running}/${job.GroupCountSum} running`),
  );
}

const milliseconds = (value) => (value ? `${value < 10 ? value.toFixed(1) : Math.round(value)} ms` : "–");
/** Answers out of the cache take next to no time. */
const latency = (value, answers) => (answers && value < 0.05 ? "< 0.1 ms" : milliseconds(value));
const rate = (value) => (value < 0 ? "–" : value < 10 ? value.toFixed(1) : String(Math.round(value)));

function shown(cluster) {
  const figures = joined(cluster.frontends, "Models", (each) => `${each.model}:${each.version}`);
  const models = cluster.models.map((job) => {
    const { model_name: name, model_version: version, input_type: input, image } = job.meta;
    const now = figures.get(`${name}:${version}`);
    return row(
      `${name}:${version}`,
      h("a", { class: "name", href: links.job(job.ID, job.Namespace), title: image }, `${name}:${version}`),
      badge(stateOf(job)),
      replicas(job),
      input ?? "–",
      ...(now
        ? [rate(now.rate_1min), milliseconds(now.p50_ms), milliseconds(now.p99_ms), String(now.queued)]
        : ["–", "–", "–", "–"]),
      now ? `${Math.round(now.batch_p50)} of ${now.batch_limit}` : "–",
    );
  });
  const applications = [...joined(cluster.frontends, "Applications", (each) => each.name).values()].map((each) =>
    row(
      each.name,
      h("span", { class: "name" }, each.name),
      each.arms.join(", ") || "none yet",
      each.policy.replace("SelectionPolicy", ""),
      rate(each.rate_1min),
      each.predictions ? `${Math.round((100 * each.defaults) / each.predictions)} %` : "–",
      latency(each.p50_ms, each.predictions),
      [latency(each.p99_ms, each.predictions), each.p99_ms > each.slo_ms ? [" ", badge("too slow", "bad")] : null],
      milliseconds(each.slo_ms),
    ),
  );
  const part = (job) => [
    h("a", { href: links.job(job.ID, job.Namespace) }, job.ID.replace(`clipper-${cluster.name}-`, "")),
    " ",
    badge(stateOf(job)),
    " ",
  ];
  const frontend = (each) => [h("code", {}, each.Address), each.Error ? ` ${each.Error}` : "", " "];
  return section(
    `Serving cluster ${cluster.name}`,
    facts(
      ["Namespace", cluster.namespace],
      ["Parts", cluster.parts.map(part)],
      ["Query frontends", cluster.frontends.map(frontend)],
    ),
    h("h3", {}, "Applications"),
    table(
      "Applications",
      ["Application", "Models", "Selection", ">Queries/s", ">Defaults", ">p50", ">p99", ">Objective"],
      applications,
      nothing("No applications yet.", "lepa app register digits"),
    ),
    h("h3", {}, "Models"),
    table(
      "Models",
      ["Model", "State", "Replicas", "Input", ">Outputs/s", ">p50", ">p99", ">Queued", "Batch"],
      models,
      nothing("No model is deployed in this cluster.", "lepa model deploy model.pkl"),
    ),
  );
}
