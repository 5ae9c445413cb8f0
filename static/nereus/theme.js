// Before the page is painted: a light flash in a dark room is worse than a late chart.
(() => {
  const KEY = "nereus-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const apply = () => {
    document.documentElement.dataset.theme = chosen() ?? (system.matches ? "dark" : "light");
    document.dispatchEvent(new CustomEvent("theme"));
  };
  apply();
  system.addEventListener("change", apply);
  document.addEventListener("click", (event) => {
    if (!event.target.closest?.("#theme-toggle")) return;
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem(KEY, next); } catch { /* private browsing: this page only */ }
    document.documentElement.dataset.theme = next;
    document.dispatchEvent(new CustomEvent("theme"));
  });
})();
