// Keeps the page current: the server sends the sections that have changed, as HTML. Copies
// documents.
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

// A phone shows the collections, and the rest on request.
if (live && !location.hash && matchMedia("(max-width: 40rem)").matches) {
  for (const details of document.querySelectorAll("main details")) details.open = false;
}

// Browsers permit copying only on loopback and over TLS.
if (navigator.clipboard) {
  for (const button of document.querySelectorAll(".copy")) {
    button.hidden = false;
    button.onclick = async () => {
      await navigator.clipboard.writeText(button.nextElementSibling.textContent);
      button.textContent = "Copied";
    };
  }
}
