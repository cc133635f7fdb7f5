// Models that are served: the jobs of serving clusters, and the applications where the registry is kept in variables.

import { links, place, segment } from "./api.js";
import { badge, bar, facts, h, headline, nothing, row, section, table } from "./dom.js";
import { stateOf, tally } from "./jobs.js";

const MODEL_JOBS_MAX = 1000;
const EVERY_MS = 10_000;
const DEFAULT_PATH = "serving";
const STORE = "--store";

/** The registry behind a `vars://HOST/PATH` store, or null. It is compressed JSON in base64, cut to what variables hold. */
async function registry(api, url, namespace) {
  const path = new URL(url.replace(/^vars:/, "http:")).pathname.replace(/^\/|\/$/g, "") || DEFAULT_PATH;
  const read = async (rest) => (await api.maybe(`var/${path}/${rest}`, { namespace }))?.Items;
  const head = await read("registry");
  if (!head) return null;
  let text = "";
  for (let part = 0; part < Number(head.parts); part++)
    text += (await read(`registry/${head.side}/${part}`))?.body ?? "";
  const packed = Uint8Array.from(atob(text), (letter) => letter.codePointAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

/** What a job says of itself: its meta, and the store of a management frontend. */
async function described(api, stub) {
  const job = await api.maybe(`job/${segment(stub.ID)}`, { namespace: stub.Namespace });
  const args = job?.TaskGroups?.[0]?.Tasks?.[0]?.Config?.args ?? [];
  const at = args.indexOf(STORE);
  return {
    ...stub,
    meta: job?.Meta ?? {},
    cpu: job?.TaskGroups?.[0]?.Tasks?.[0]?.Resources ?? {},
    store: at < 0 ? "" : args[at + 1],
  };
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
    const jobs = [];
    for (const stub of value ?? []) jobs.push(await described(api, stub));
    const clusters = new Map();
    for (const job of jobs.filter((each) => each.meta.clipper_cluster && !each.Stop)) {
      const key = `${job.Namespace}/${job.meta.clipper_cluster}`;
      if (!clusters.has(key))
        clusters.set(key, {
          name: job.meta.clipper_cluster,
          namespace: job.Namespace,
          models: [],
          parts: [],
          registry: null,
        });
      const cluster = clusters.get(key);
      (job.meta.model_name ? cluster.models : cluster.parts).push(job);
    }
    for (const cluster of clusters.values()) {
      const store = cluster.parts.find((job) => job.store.startsWith("vars://"))?.store;
      if (store) cluster.registry = await registry(api, store, cluster.namespace).catch(() => null);
      cluster.instances = await api.maybe(
        `service/clipper-${cluster.name}-query-frontend-service`,
        { namespace: cluster.namespace },
        [],
      );
    }
    return { clusters: [...clusters.values()].sort((one, other) => one.name.localeCompare(other.name)) };
  },
  view({ clusters }) {
    if (!clusters.length)
      return h(
        "div",
        {},
        headline("Models"),
        nothing(
          "No models are served yet. Deploy one; its serving cluster is started with it:",
          "lepa model deploy model.pkl -app digits",
        ),
      );
    return h("div", {}, headline("Models"), clusters.map(shown));
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

function shown(cluster) {
  const { registry: known } = cluster;
  const address = cluster.instances[0] ? `${cluster.instances[0].Address}:${cluster.instances[0].Port}` : "";
  const models = cluster.models.map((job) => {
    const { model_name: name, model_version: version } = job.meta;
    return row(
      `${name}:${version}`,
      h("a", { class: "name", href: links.job(job.ID, job.Namespace) }, name),
      [version, known?.current?.[name] === version ? [" ", badge("current", "accent")] : null],
      badge(stateOf(job)),
      replicas(job),
      job.meta.input_type ?? "–",
      h("span", { class: "dim" }, job.meta.image ?? "–"),
    );
  });
  const applications = Object.values(known?.applications ?? {}).map((app) =>
    row(
      app.name,
      h("span", { class: "name" }, app.name),
      app.linked_models?.join(", ") || "none yet",
      (app.policy ?? "").replace("SelectionPolicy", "") || "Default output",
      `${app.latency_slo_micros / 1000} ms`,
      app.input_type,
      h("code", {}, app.default_output),
    ),
  );
  return section(
    `Serving cluster ${cluster.name}`,
    facts(
      ["Namespace", cluster.namespace],
      [
        "Parts",
        cluster.parts.map((job) => [
          h("a", { href: links.job(job.ID, job.Namespace) }, job.ID.replace(`clipper-${cluster.name}-`, "")),
          " ",
          badge(stateOf(job)),
          " ",
        ]),
      ],
      ["Query frontends", cluster.instances.map((each) => h("code", {}, `${each.Address}:${each.Port} `))],
    ),
    known
      ? table(
          "Applications",
          ["Application", "Models", "Selection", "Answers within", "Input", "Default output"],
          applications,
          nothing("No applications yet."),
        )
      : h(
          "p",
          { class: "dim" },
          "Applications are kept by the management frontend itself: ",
          h("code", {}, "lepa app list"),
          " shows them.",
        ),
    table(
      "Models",
      ["Model", "Version", "State", "Replicas", "Input", "Image"],
      models,
      nothing("No model is deployed in this cluster.", "lepa model deploy model.pkl"),
    ),
    h(
      "p",
      { class: "dim" },
      "Latency, throughput and batches as they are now: ",
      h("code", {}, "lepa model top"),
      address ? [", or ", h("code", {}, `curl ${address}/metrics`)] : null,
    ),
  );
}
