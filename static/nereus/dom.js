// Elements from data. Text is always a text node, so a name that looks like markup stays a name.

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "value" || name === "max") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function setText(node, text) {
  if (node && node.textContent !== text) node.textContent = text;
}

const name = (node) => node.dataset.testid ?? (node.id || node.getAttribute("href"));

// Change what is inside `box`, with the focus on the same thing afterwards: the element itself, or one of the same name.
export function keepFocus(box, change) {
  const focused = box.contains(document.activeElement) ? document.activeElement : null;
  change();
  if (!focused || focused === document.activeElement) return;
  const wanted = focused.isConnected ? focused : [...box.querySelectorAll("a, button, input, select, summary, [tabindex]")].find((node) => name(node) && name(node) === name(focused));
  wanted?.focus({ preventScroll: true });
}

export function toast(text, tone = "good", seconds = 6) {
  const box = document.getElementById("toasts");
  if (!box) return;
  const note = el("div", { class: `notice ${tone}`, "data-testid": "toast" }, text);
  box.append(note);
  setTimeout(() => note.remove(), seconds * 1000);
}
