"use strict";
// The pages work without this script. It adds the reader's time zone, copying,
// confirmations in place, and live updates.

// Secrets are shown once: reloading and coming back lead to the page of the key or
// webhook, and the page that the browser keeps holds no secret.
if (document.body.dataset.replace || location.search.includes("done=")) {
  for (const link of [...document.links, document.querySelector("link[rel=icon]")]) { // they are relative to the address
    if (!link.getAttribute("href").startsWith("#")) link.href = link.href;
  }
  for (const form of document.forms) form.action = form.action;
  const to = new URL(document.body.dataset.replace || location.href, location.href);
  to.searchParams.delete("done");
  history.replaceState(null, "", to);
}
addEventListener("pagehide", () => {
  for (const secret of document.querySelectorAll("[data-secret]")) secret.textContent = "No longer shown";
});

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  const label = button.textContent;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch { // not over plain http
      source.closest("details")?.setAttribute("open", "");
      getSelection().selectAllChildren(source);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 2000);
  });
}

// Buttons that select the scopes with matching names.
for (const button of document.querySelectorAll("[data-pick]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    for (const box of button.form.querySelectorAll("[name=scopes]")) box.checked = new RegExp(button.dataset.pick).test(box.value);
  });
}

// A form is sent once.
addEventListener("submit", (event) => {
  const button = event.submitter;
  if (!button || event.target.method !== "post") return;
  setTimeout(() => {
    button.disabled = true;
    if (button.dataset.busy) button.textContent = button.dataset.busy;
  });
});
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});

document.querySelector("[aria-invalid=true]")?.focus();

for (const all of document.querySelectorAll("[data-all]")) {
  all.parentElement.hidden = false;
  all.addEventListener("change", () => {
    for (const box of document.querySelectorAll("input[name=event]")) box.checked = all.checked;
  });
}

// Times are shown in the reader's zone, and in UTC on hover. Relative ones stay.
function localize(root) {
  const date = { day: "numeric", month: "short", year: "numeric" };
  const minute = { ...date, hour: "2-digit", minute: "2-digit", timeZoneName: "short" };
  const second = { ...minute, second: "2-digit" };
  for (const time of root.querySelectorAll("time:not([title])")) {
    const show = (options) => new Date(time.dateTime).toLocaleString("en-GB", options);
    time.title = show({ ...second, timeZone: "UTC" });
    time.textContent = show([date, minute, second][time.textContent.split(":").length - 1]);
  }
  for (const hour of root.querySelectorAll("[data-hour]")) {
    hour.textContent = new Date(hour.dataset.hour).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  }
  return root;
}
localize(document);

// Fields are in the reader's zone, too; what is sent is in UTC. One that the browser has
// filled in again is so already.
const moments = document.querySelectorAll("input[type=datetime-local]");
for (const zone of document.querySelectorAll("[data-zone]")) zone.textContent = "(your time)";
for (const input of moments) {
  const at = new Date(input.defaultValue + "Z");
  if (new Date(input.value + "Z") - at === 0) input.value = new Date(at - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
}
addEventListener("formdata", (event) => {
  for (const input of moments) {
    if (input.form === event.target && input.value) event.formData.set(input.name, new Date(input.value).toISOString().slice(0, 19));
  }
});

async function load(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(response.statusText);
  return new DOMParser().parseFromString(await response.text(), "text/html");
}

// A page with a confirmation is shown in a dialog on the current page.
document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-dialog]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  let ask;
  try {
    ask = localize(document.importNode((await load(link.href)).getElementById("ask"), true));
  } catch {
    location.href = link.href;
    return;
  }
  const dialog = document.createElement("dialog");
  const heading = ask.querySelector("h1");
  heading.id = "ask-heading";
  dialog.setAttribute("aria-labelledby", heading.id);
  ask.querySelector("form").action = link.href;
  ask.querySelector("[data-close]").addEventListener("click", (close) => {
    close.preventDefault();
    dialog.close();
  });
  dialog.addEventListener("close", () => { dialog.remove(); link.focus(); });
  dialog.addEventListener("click", (outside) => { if (outside.target === dialog) dialog.close(); });
  dialog.append(ask);
  document.body.append(dialog);
  dialog.showModal();
});

// The live parts of a page are loaded again, and those replaced that have changed.
async function refresh() {
  const parts = document.querySelectorAll("[data-live]");
  if (!parts.length) return;
  try {
    const page = await load(location.href);
    for (const now of parts) {
      const next = localize(document.importNode(page.getElementById(now.id), true));
      if (next.outerHTML === now.outerHTML) continue;
      const open = [...now.querySelectorAll("details")].map((details) => details.open).reverse();
      [...next.querySelectorAll("details")].reverse().forEach((details, i) => { details.open = open[i] || false; });
      now.replaceWith(next);
    }
  } catch { /* retried next time */ }
  setTimeout(refresh, document.hidden ? 10000 : 1000);
}
setTimeout(refresh, 1000);
