// Per-second figures: from gateways' seconds to the numbers that are drawn. Pure: no DOM, no clock of its own.
// Times are unix seconds, rates queries/s, accuracies percent of the application's best variant, ratios percent. A second without any
// gateway's report is null everywhere, so that a gap looks like a gap and not like zero.

export const KEEP_S = 330;
const COUNTS = ["arrived", "arrived_rows", "in_time", "late", "dropped", "failed", "accuracy_sum", "normalized_sum"];

function emptyCounts() {
  const counts = { p50_ms: null, p95_ms: null, by_variant: {} };
  for (const name of COUNTS) counts[name] = 0;
  return counts;
}

function add(total, part) {
  for (const name of COUNTS) total[name] += Number(part[name]) || 0;
  // Percentiles of several gateways do not add up; the slowest gateway's is the honest bound. 0 means no answers.
  for (const name of ["p50_ms", "p95_ms"]) if (part[name] > 0) total[name] = Math.max(total[name] ?? 0, part[name]);
  for (const [variant, n] of Object.entries(part.by_variant ?? {})) {
    total.by_variant[variant] = (total.by_variant[variant] ?? 0) + n;
  }
  return total;
}

// The figures of some counts over `seconds`; a ratio of nothing is null.
export function figures(counts, seconds = 1) {
  const answered = counts.in_time + counts.late;
  const ended = answered + counts.dropped + counts.failed;
  return {
    demand: counts.arrived / seconds,
    throughput: answered / seconds,
    accuracy: counts.in_time > 0 ? counts.normalized_sum / counts.in_time : null,
    violations: ended > 0 ? ((ended - counts.in_time) / ended) * 100 : null,
    p95: counts.p95_ms,
    byVariant: Object.fromEntries(Object.entries(counts.by_variant).map(([name, n]) => [name, n / seconds])),
  };
}

export class Telemetry {
  constructor(keep = KEEP_S) {
    this.keep = keep;
    this.seconds = new Map(); // t -> gateway -> {t as reported, applications: {name: counts}}
    this.latest = 0;
  }

  // A gateway's second; the same one again (history that overlaps live events) changes nothing.
  addGatewaySecond(data) {
    const t = Math.trunc(data?.t);
    if (!Number.isFinite(t) || typeof data.gateway !== "string" || t <= this.latest - this.keep) return;
    const report = { t, text: JSON.stringify(data.applications ?? {}), applications: data.applications ?? {} };
    const near = [t, t - 1, t + 1].map((second) => this.#report(second, data.gateway));
    if (near.some((other) => other?.t === t && other.text === report.text)) return;
    // Reports come about a second apart, so two may fall into one second with none in the next to it: spread them.
    if (near[0] && !near[1]) this.#put(t - 1, data.gateway, near[0]);
    this.#put(near[0] && near[1] && !near[2] ? t + 1 : t, data.gateway, report);
    if (t > this.latest) {
      this.latest = t;
      for (const old of this.seconds.keys()) if (old <= t - this.keep) this.seconds.delete(old);
    }
  }

  #report(t, gateway) {
    return this.seconds.get(t)?.get(gateway);
  }

  #put(t, gateway, report) {
    if (!this.seconds.has(t)) this.seconds.set(t, new Map());
    this.seconds.get(t).set(gateway, report);
  }

  // Counts of one second, of one application or (null) of all; null where no gateway reported.
  at(t, application = null) {
    const gateways = this.seconds.get(t);
    if (!gateways) return null;
    const total = emptyCounts();
    for (const { applications } of gateways.values()) {
      if (application !== null) { if (Object.hasOwn(applications, application)) add(total, applications[application]); continue; }
      for (const counts of Object.values(applications)) add(total, counts);
    }
    return total;
  }

  // The last `length` seconds up to and including `end`, as arrays of equal length with null in gaps.
  window(end, length, application = null) {
    const columns = { x: [], demand: [], throughput: [], accuracy: [], violations: [], p95: [], byVariant: {} };
    for (let i = 0; i < length; i += 1) {
      const t = end - length + 1 + i;
      const counts = this.at(t, application);
      const now = counts ? figures(counts) : null;
      columns.x.push(t - end);
      for (const name of ["demand", "throughput", "accuracy", "violations", "p95"]) columns[name].push(now?.[name] ?? null);
      if (!now) {
        for (const column of Object.values(columns.byVariant)) column.push(null);
        continue;
      }
      for (const name of Object.keys(now.byVariant)) columns.byVariant[name] ??= this.#padding(columns.x, end, application);
      for (const [name, column] of Object.entries(columns.byVariant)) column.push(now.byVariant[name] ?? 0);
    }
    return columns;
  }

  // A variant's column before its first answer: zero where there were reports, null in gaps.
  #padding(x, end, application) {
    return x.slice(0, -1).map((offset) => (this.at(end + offset, application) ? 0 : null));
  }

  // Figures over the last `length` seconds; null where no gateway reported in any of them.
  now(end, length, application = null) {
    const total = emptyCounts();
    let reported = 0;
    for (let t = end - length + 1; t <= end; t += 1) {
      const counts = this.at(t, application);
      if (!counts) continue;
      reported += 1;
      add(total, counts);
    }
    return reported ? figures(total, reported) : null;
  }

  applications(end, length) {
    const names = new Set();
    for (let t = end - length + 1; t <= end; t += 1) {
      for (const { applications } of this.seconds.get(t)?.values() ?? []) {
        for (const name of Object.keys(applications)) names.add(name);
      }
    }
    return [...names].sort();
  }
}

// A column in words, for those who do not see the chart: "latest 5.0, from 1.0 to 9.0".
export function words(column, digits = 1) {
  const known = column.filter((value) => value !== null);
  if (known.length === 0) return "no values";
  const [last, low, high] = [known.at(-1), Math.min(...known), Math.max(...known)].map((value) => value.toFixed(digits));
  return `latest ${last}, from ${low} to ${high}`;
}

// How many drawn points of a column carry a value.
export const points = (column) => column.reduce((n, value) => n + (value === null ? 0 : 1), 0);
