// The admin site's pages name no main part of their own.
addEventListener("DOMContentLoaded", () => document.getElementById("main")?.setAttribute("role", "main"));
