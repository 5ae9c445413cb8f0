// The range of time that a page shows, and how the address holds it: ?range=SECONDS up to now, or ?begin= and &end=;
// `standard`: seconds of a page whose address has neither.

// The browser's day before this one.
export const YESTERDAY = "yesterday";
export const RANGES = [[60, "1 min"], [300, "5 min"], [900, "15 min"], [3600, "1 h"], [21600, "6 h"], [86400, "24 h"], [YESTERDAY, "yesterday"], [604800, "7 days"], [2592000, "30 days"], [7776000, "90 days"]];
const DEFAULT_S = 900;
// Ranges up to this are of seconds, and follow the present.
export const LIVE_S = 900;
const LEAST_S = 10;
const LONGEST_S = 7776000;

// A range: {seconds} up to now, {begin, end}, or YESTERDAY.
export function parse(search, standard = DEFAULT_S) {
  const query = new URLSearchParams(search);
  if (query.get("range") === YESTERDAY) return YESTERDAY;
  const [range, begin, end] = ["range", "begin", "end"].map((name) => Number.parseInt(query.get(name) ?? "", 10));
  if (begin > 0 && end > begin) return { begin: Math.max(begin, end - LONGEST_S), end };
  return { seconds: range > 0 ? Math.min(Math.max(range, LEAST_S), LONGEST_S) : standard };
}

export function address(range, path = "/", standard = DEFAULT_S) {
  if (range === YESTERDAY) return `${path}?range=${YESTERDAY}`;
  if (range.seconds) return range.seconds === standard ? path : `${path}?range=${range.seconds}`;
  return `${path}?begin=${range.begin}&end=${range.end}`;
}

export function span(range, now) {
  if (range === YESTERDAY) {
    const today = new Date(now * 1000).setHours(0, 0, 0, 0) / 1000;
    return { begin: new Date((today - 43200) * 1000).setHours(0, 0, 0, 0) / 1000, end: today };
  }
  return range.seconds ? { begin: now - range.seconds, end: now } : { begin: range.begin, end: range.end };
}

// The same length, one half earlier (-1) or later (1); one that would reach the present follows it.
export function moved(range, direction, now) {
  const { begin, end } = span(range, now);
  const by = Math.round((end - begin) / 2) * direction;
  return end + by >= now ? { seconds: end - begin } : { begin: begin + by, end: end + by };
}

// Half (0.5) or twice (2) the length.
export function scaled(range, factor, now) {
  const { begin, end } = span(range, now);
  const length = Math.min(LONGEST_S, Math.max(LEAST_S, Math.round((end - begin) * factor)));
  if (range.seconds) return { seconds: length };
  const middle = Math.round((begin + end) / 2);
  const last = middle + Math.ceil(length / 2);
  return last >= now ? { seconds: length } : { begin: last - length, end: last };
}

// Buttons that move and scale a range: text, title and the range that they lead to.
export function moves(range, now) {
  return [["←", "Earlier", () => moved(range(), -1, now())], ["→", "Later", () => moved(range(), 1, now())],
    ["−", "Zoom out", () => scaled(range(), 2, now())], ["+", "Zoom in", () => scaled(range(), 0.5, now())]];
}

export function chosen(begin, end) {
  const missing = Math.max(0, LEAST_S - (end - begin));
  return { begin: begin - Math.floor(missing / 2), end: end + Math.ceil(missing / 2) };
}
