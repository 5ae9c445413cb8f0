// Colours of the theme by their names in console.css. Each is read once: reading makes the browser work out all styles.

const known = new Map();
document.addEventListener("theme", () => known.clear());

export function css(name) {
  if (!known.get(name)) known.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return known.get(name);
}
