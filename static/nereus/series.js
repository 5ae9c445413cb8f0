// Per-second figures: from gateways' seconds to the numbers that are drawn. Pure: no DOM, no clock of its own.
// Times are unix seconds, rates queries/s, accuracies percent of the application's best variant, ratios percent. A second without any
// gateway's report is null everywhere, so that a gap looks like a gap and not like zero.

export const KEEP_S = 330;
const COUNTS = ["arrived", "in_time", "late", "dropped", "failed", "normalized_sum"];
const NAMES = ["demand", "throughput", "accuracy", "violations", "p95"];

function emptyCounts() {
  const counts = { p95_ms: null, by_variant: {} };
  for (const name of COUNTS) counts[name] = 0;
  return counts;
}

function add(total, part) {
  for (const name of COUNTS) total[name] += Number(part[name]) || 0;
  // Percentiles of several gateways do not add up; the slowest gateway's is the honest bound. 0 means no answers.
  if (part.p95_ms > 0) total.p95_ms = Math.max(total.p95_ms ?? 0, part.p95_ms);
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

// The history's answer as columns: x is in unix seconds.
export function columns(found) {
  const x = Array.from({ length: found.points }, (_, i) => found.begin + i * found.step + (found.step > 1 ? found.step / 2 : 0));
  return { ...Object.fromEntries(NAMES.map((name) => [name, found[name]])), x, step: found.step, p95: found.p95_ms, byVariant: found.by_variant };
}

// Have columns of seconds end at `end`, with no more than `length` of them; `report(at)`: the figures of a second, if known.
export function follow(columns, length, end, report) {
  const { x, demand, byVariant } = columns;
  const all = () => [...NAMES.map((name) => columns[name]), ...Object.values(byVariant)];
  for (let at = Math.max(x.at(-1) + 1, end - length); at <= end; at += 1) {
    x.push(at);
    for (const column of all()) column.push(null);
  }
  // Also reports that were under way when the range was read.
  for (let i = x.length - 1; i >= 0; i -= 1) {
    const now = demand[i] === null ? report(x[i]) : null;
    if (!now) continue;
    for (const name of NAMES) columns[name][i] = now[name];
    // A variant's column before its first answer: zero where there were reports, null in gaps.
    for (const name of Object.keys(now.byVariant)) byVariant[name] ??= demand.map((value) => (value === null ? null : 0));
    for (const [name, column] of Object.entries(byVariant)) column[i] = now.byVariant[name] ?? 0;
  }
  const old = x.findIndex((at) => at >= end - length);
  if (old > 0) for (const column of [x, ...all()]) column.splice(0, old);
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
}

// A column in words, for those who do not see the chart: "latest 5.0, from 1.0 to 9.0".
export function words(column, digits = 1) {
  const known = column.filter((value) => value !== null);
  if (known.length === 0) return "no values";
  const [last, low, high] = [known.at(-1), Math.min(...known), Math.max(...known)].map((value) => value.toFixed(digits));
  return `latest ${last}, from ${low} to ${high}`;
}

// Each variant's part of the answers, percent, the largest first.
export function shares(byVariant) {
  const sums = Object.entries(byVariant).map(([name, rates]) => [name, rates.reduce((sum, value) => sum + (value ?? 0), 0)]);
  const all = sums.reduce((sum, [, value]) => sum + value, 0);
  return all > 0 ? sums.filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]).map(([name, value]) => [name, (100 * value) / all]) : [];
}
