// Times of server-made pages in the browser's zone. The server writes them in UTC; that stays in the title. Forms take
// local times and send them as moments.

// Sweden writes times in ISO's order.
const full = (at) => at.toLocaleString("sv-SE");
const FORMS = { full, minutes: (at) => full(at).slice(0, 16), day: (at) => full(at).slice(0, 10), seconds: (at) => full(at).slice(11) };

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
    field.defaultValue = FORMS.minutes(new Date(`${field.defaultValue}Z`)).replace(" ", "T");
  }
  for (const name of root.querySelectorAll("[data-zone]")) name.textContent = zone();
}
