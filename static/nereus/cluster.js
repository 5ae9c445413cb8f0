// The cluster's state on the page: the snapshot, then events. Pure: no DOM.

export class Cluster {
  constructor() {
    this.skew = 0; // server clock less this browser's, seconds
    this.applications = new Map();
    this.variants = new Map();
    this.nodes = new Map();
    this.gateways = new Map();
    this.devices = new Map();
    this.plan = null;
    this.seconds = new Map(); // device ref -> its latest second, with `t`
    this.known = false;
  }

  applySnapshot(data, clientNow) {
    const by = (list, key) => new Map(list.map((item) => [item[key], item]));
    this.skew = data.now - clientNow;
    this.applications = by(data.applications, "name");
    this.variants = by(data.variants, "id");
    this.nodes = by(data.nodes, "name");
    this.gateways = by(data.gateways, "name");
    this.devices = by(data.devices, "ref");
    for (const ref of this.seconds.keys()) if (!this.devices.has(ref)) this.seconds.delete(ref);
    // A plan event may have overtaken the snapshot.
    if (!this.plan || !data.plan || data.plan.version >= this.plan.version) this.plan = data.plan;
    this.known = true;
  }

  applyPlan(data, serverNow) {
    if (this.plan && data.version < this.plan.version) return false;
    this.plan = { ...data, created: Number.isFinite(data.created) ? data.created : serverNow };
    return true;
  }

  // Whether the device is known.
  applyDeviceState(data) {
    const device = this.devices.get(data.device);
    if (device) Object.assign(device, { state: data.state, warm: data.warm ?? device.warm, detail: data.detail ?? "" });
    return Boolean(device);
  }

  // Whether the member is known.
  applyMember(data) {
    const member = (data.kind === "gateway" ? this.gateways : this.nodes).get(data.name);
    if (member) Object.assign(member, { state: data.state, connected: data.connected });
    return Boolean(member);
  }

  applyNodeSecond(data) {
    // Figures that are 0 are left out.
    for (const device of data.devices ?? []) this.seconds.set(device.device, { busy: 0, profiling: 0, queued_rows: 0, memory_bytes: 0, ...device, t: data.t });
  }

  variantsOf(application) {
    return [...this.variants.values()].filter((v) => v.application === application).sort((a, b) => (b.accuracy ?? -1) - (a.accuracy ?? -1) || a.name.localeCompare(b.name));
  }

  // Devices by node, placements by device and variants by application, best first: one pass for a whole map.
  index() {
    const variants = new Map();
    for (const variant of this.variants.values()) {
      if (!variants.has(variant.application)) variants.set(variant.application, this.variantsOf(variant.application));
    }
    return { devices: Map.groupBy(this.devices.values(), (device) => device.node), placements: Map.groupBy(this.plan?.placements ?? [], (p) => p.device), variants };
  }

  // Percent of the application's best profiled variant, null where unknown.
  normalized(variant, variants = null) {
    if (variant?.accuracy === null || variant?.accuracy === undefined) return null;
    const ready = (variants ?? this.variantsOf(variant.application)).filter((v) => ["loading", "ready"].includes(v.state) && v.accuracy !== null);
    const best = ready.length ? ready[0].accuracy : variant.accuracy;
    return best > 0 ? Math.min(100, (variant.accuracy / best) * 100) : null;
  }

  // What a device hosts: the plan's residents, whether each is warm, and warm ones that the plan no longer wants.
  hosted(ref, placements = (this.plan?.placements ?? []).filter((p) => p.device === ref)) {
    const device = this.devices.get(ref);
    const warm = new Set(device?.warm ?? []);
    const planned = placements.map((p) => ({ ...p, warm: warm.has(p.variant), leaving: false }));
    const wanted = new Set(planned.map((p) => p.variant));
    const leaving = [...warm].filter((id) => !wanted.has(id)).map((id) => {
      const variant = this.variants.get(id);
      return { variant: id, variant_name: variant?.name ?? `variant ${id}`, application: variant?.application ?? "", warm: true, leaving: true };
    });
    return [...planned, ...leaving];
  }
}
