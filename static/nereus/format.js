// Numbers as people read them. null and NaN are a dash.

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

export function rate(value) {
  if (!known(value)) return "–";
  if (value > 0 && value < 0.1) return value >= 0.01 ? value.toFixed(2) : "< 0.01";
  return Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(1);
}

export const percent = (value, digits = 1) => (known(value) ? value.toFixed(digits) : "–");

export function ms(value) {
  if (!known(value)) return "–";
  return `${value >= 10 ? value.toFixed(0) : value.toFixed(2)} ms`;
}

export function bytes(value) {
  if (!known(value) || value <= 0) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let index = 0;
  while (value >= 1024 && index < units.length - 1) { value /= 1024; index += 1; }
  return `${value >= 100 || index === 0 ? value.toFixed(0) : value.toFixed(1)} ${units[index]}`;
}

export function age(seconds) {
  if (!known(seconds)) return "–";
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

export function clock(unix) {
  return new Date(unix * 1000).toLocaleTimeString("en-GB", { hour12: false });
}

// A moment on an axis of so many seconds, in the browser's zone; 0: in full.
export function moment(unix, length) {
  const at = new Date(unix * 1000);
  const day = at.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  const time = at.toLocaleTimeString("en-GB", { hour12: false });
  if (length === 0) return new Date().toDateString() === at.toDateString() ? time : `${day} ${time.slice(0, 5)}`;
  if (length > 3 * 86400) return day;
  return length > 600 ? time.slice(0, 5) : time;
}
