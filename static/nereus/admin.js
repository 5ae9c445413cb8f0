// The admin site's pages name no main part of their own, and call all parts that scroll the same.
addEventListener("DOMContentLoaded", () => document.getElementById("main")?.setAttribute("role", "main"));
addEventListener("load", () => document.querySelectorAll(".simplebar-content-wrapper").forEach((part, i) => part.setAttribute("aria-label", `scrollable content ${i + 1}`)));
