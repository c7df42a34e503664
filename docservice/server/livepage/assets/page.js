// Keeps the page current: the server sends the sections that have changed, as HTML.
"use strict";

const connection = document.getElementById("connection");
const live = document.body.dataset.live;

function replace(event) {
  const section = document.getElementById(event.type);
  const focused = section.contains(document.activeElement) && document.activeElement.getAttribute("aria-label");
  const scrolled = [...section.querySelectorAll(".scroll")].map((region) => [region.scrollLeft, region.scrollTop]);
  section.innerHTML = event.data;
  section.querySelectorAll(".scroll").forEach((region, i) => {
    if (scrolled[i]) [region.scrollLeft, region.scrollTop] = scrolled[i];
  });
  if (focused) section.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
  connection.textContent = "live";
}

if (live) {
  const source = new EventSource(live);
  for (const section of document.querySelectorAll("[id]")) source.addEventListener(section.id, replace);
  source.onopen = () => { connection.textContent = "live"; };
  source.onerror = () => {
    connection.textContent = "connection lost at " + new Date().toLocaleTimeString() + "; trying again";
  };
}
