// Services by name, their instances, and whether their checks pass.

import { links, place, segment } from "./api.js";
import { badge, bar, h, headline, nothing, row, short, table } from "./dom.js";
import { filterBox } from "./jobs.js";

const SERVICES_SHOWN = 100;
const AT_ONCE = 4;
const EVERY_MS = 15_000;

/** How the instances of a service are: parts of a bar. */
function health(instances) {
  const status = (each) => each.Status || (each.Checks?.length ? each.Checks[0].Status : "passing");
  return ["passing", "warning", "critical", "pending"].map((name) => ({
    name,
    count: instances.filter((each) => status(each) === name).length,
  }));
}

/** The results of `work` for each item, a few at a time. */
async function each(items, work) {
  const found = new Array(items.length);
  let next = 0;
  const worker = async () => {
    while (next < items.length) {
      const at = next++;
      found[at] = await work(items[at]);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return found;
}

const tagsOf = (tags) => (tags ?? []).map((tag) => h("span", { class: "chip" }, tag));

export const servicesPage = {
  title: () => "Services",
  topics: () => ["Service"],
  every: EVERY_MS,
  state: () => ({ text: "" }),
  async load(api, _, state) {
    const spaces = (await api.get("services", { namespace: place.namespace })) ?? [];
    const text = state.text.toLowerCase();
    const all = spaces
      .flatMap((space) => space.Services.map((service) => ({ ...service, Namespace: space.Namespace })))
      .filter((service) => service.ServiceName.toLowerCase().includes(text))
      .sort((one, other) => one.ServiceName.localeCompare(other.ServiceName));
    const shown = all.slice(0, SERVICES_SHOWN);
    const instances = await each(shown, (service) =>
      api.maybe(`service/${segment(service.ServiceName)}`, { namespace: service.Namespace }, []),
    );
    return {
      services: shown.map((service, at) => ({ ...service, instances: instances[at] })),
      more: all.length - shown.length,
    };
  },
  view({ services, more }, _, visit) {
    const everywhere = place.namespace === "*";
    const rows = services.map((service) => {
      const parts = health(service.instances);
      const passing = parts[0].count;
      return row(
        `${service.Namespace}/${service.ServiceName}`,
        h("a", { class: "name", href: links.service(service.ServiceName, service.Namespace) }, service.ServiceName),
        everywhere ? service.Namespace : null,
        h(
          "span",
          { class: "fill" },
          bar(parts),
          h("span", { class: "words" }, `${passing}/${service.instances.length} passing`),
        ),
        tagsOf(service.Tags),
      );
    });
    return h(
      "div",
      {},
      headline("Services", h("span", { class: "grow" }), filterBox("Filter by name", visit)),
      table(
        "Services",
        ["Name", everywhere ? "Namespace" : "", "Instances", "Tags"],
        rows,
        visit.state.text
          ? nothing("No service fits what you look for.")
          : nothing(
              "No services yet. A job offers one with a service block:",
              'service {\n  name     = "web"\n  port     = "http"\n  provider = "nomad"\n}',
            ),
      ),
      more > 0 ? h("p", { class: "dim" }, `${more} more: narrow them by name.`) : null,
    );
  },
};

export const servicePage = {
  title: ({ id }) => id,
  topics: ({ id }) => [`Service:${id}`],
  every: EVERY_MS,
  state: (query) => ({ namespace: query.get("namespace") ?? "default" }),
  async load(api, { id }, state) {
    return { instances: (await api.get(`service/${segment(id)}`, { namespace: state.namespace })) ?? [] };
  },
  view({ instances }, { id }) {
    const rows = instances.map((each) =>
      row(
        each.ID,
        h("code", {}, each.Port ? `${each.Address}:${each.Port}` : each.Address || "–"),
        badge(each.Status || "passing"),
        (each.Checks ?? []).map((check) =>
          h("div", {}, badge(check.Status), " ", check.Name, " ", h("span", { class: "dim" }, check.Output)),
        ),
        each.JobID ? h("a", { href: links.job(each.JobID, each.Namespace) }, each.JobID) : "–",
        each.AllocID ? h("a", { href: links.allocation(each.AllocID) }, h("code", {}, short(each.AllocID))) : "–",
        h("a", { href: links.node(each.NodeID) }, h("code", {}, short(each.NodeID))),
        tagsOf(each.Tags),
      ),
    );
    return h(
      "div",
      {},
      h(
        "p",
        { class: "crumbs" },
        h("a", { href: links.page("services") }, "Services"),
        " / ",
        instances[0]?.Namespace ?? "",
      ),
      headline(id),
      table(
        "Instances",
        ["Address", "Status", "Checks", "Job", "Allocation", "Node", "Tags"],
        rows,
        nothing("No instance runs now.", `dig @127.0.0.1 -p 8600 ${id}.service.consul SRV`),
      ),
    );
  },
};
