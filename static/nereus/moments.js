// Times of server-made pages in the browser's zone. The server writes them in UTC; that stays in the title. Forms take
// local times and send them as moments.

const two = (number) => String(number).padStart(2, "0");
const day = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
const minutes = (at) => `${two(at.getHours())}:${two(at.getMinutes())}`;
const FORMS = {
  full: (at) => `${day(at)} ${minutes(at)}:${two(at.getSeconds())}`,
  minutes: (at) => `${day(at)} ${minutes(at)}`,
  day,
  seconds: (at) => `${minutes(at)}:${two(at.getSeconds())}`,
};

// The name of the browser's zone.
export const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

// The value of a field for a time, as a moment in UTC.
export const utc = (value) => new Date(value).toISOString();

// Every time under `root`, a part of this page or one that is about to become that. Twice is as once.
export function localize(root) {
  // Titles of drawings hold text alone.
  for (const title of root.querySelectorAll("title[data-moment]")) {
    const text = `${title.dataset.before}${FORMS[title.dataset.moment](new Date(title.dataset.at))}`;
    if (title.textContent !== text) title.textContent = text;
  }
  for (const time of root.querySelectorAll("time[data-moment]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    if (!time.title) time.title = `${time.dateTime.replace("T", " ").replace(/(\.\d+)?(Z|\+00:00)$/, "")} UTC`;
    const text = FORMS[time.dataset.moment]?.(at);
    if (text && time.textContent !== text) time.textContent = text;
  }
  for (const field of root.querySelectorAll('input[data-kind="time-or-none"]:not([data-local])')) {
    field.dataset.local = "";
    if (!field.defaultValue) continue;
    const at = new Date(`${field.defaultValue}Z`);
    field.defaultValue = `${day(at)}T${minutes(at)}`;
  }
  for (const name of root.querySelectorAll("[data-zone]")) name.textContent = zone();
}
