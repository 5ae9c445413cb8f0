// Tables that are wider than their place scroll by keys, too: each such place is a stop of the tabulator, with a name.

const described = (box) => box.querySelector("caption")?.textContent.trim()
  || box.closest("section")?.getAttribute("aria-label") || box.closest("section, article")?.querySelector("h1, h2, h3")?.textContent.trim() || document.title;

function mark(box) {
  const wide = box.scrollWidth > box.clientWidth;
  if (wide === (box.tabIndex === 0)) return;
  if (!wide) {
    for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
    return;
  }
  box.tabIndex = 0;
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", `${described(box).replace(/\s+/g, " ")}, scrolls sideways`);
}

export function startScrollers() {
  const sizes = new ResizeObserver((entries) => {
    // One that was taken out of its place is told of once more.
    const boxes = entries.map((entry) => entry.target.closest(".scroll"));
    boxes.filter(Boolean).forEach(mark);
  });
  const seen = new WeakSet();
  const watch = () => {
    for (const box of document.querySelectorAll(".scroll")) {
      for (const part of [box, ...box.children]) {
        if (seen.has(part)) continue;
        seen.add(part);
        sizes.observe(part);
      }
    }
  };
  watch();
  new MutationObserver(watch).observe(document.body, { childList: true, subtree: true });
}
