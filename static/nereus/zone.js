// The admin site's pages are rendered with times: its server learns the browser's zone by a cookie.
(() => {
  const zone = `nereus_zone=${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
  if (document.cookie.split("; ").includes(zone)) return;
  document.cookie = `${zone}; path=/; max-age=31536000; samesite=lax`;
  // In another zone than before, or not by way of the console; without cookies it would never end.
  if (location.pathname.startsWith("/admin/") && document.cookie.split("; ").includes(zone)) location.replace(location.href);
})();
