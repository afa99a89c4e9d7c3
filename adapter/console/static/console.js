// Comfort only: every page works without this.
"use strict";

// A form is sent once, and what cannot be undone is asked about.
document.addEventListener("submit", (event) => {
  const question = event.submitter?.dataset.confirm;
  if (question && !confirm(question)) {
    event.preventDefault();
    return;
  }
  const form = event.target;
  if (form.dataset.sent) {
    event.preventDefault();
    return;
  }
  form.dataset.sent = "1";
  // After the form was read: a disabled button is not in it.
  setTimeout(() => form.querySelectorAll("button").forEach((b) => { b.disabled = true; }));
});
// Back from another page, forms are as they were.
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});

if (navigator.clipboard) {
  for (const code of document.querySelectorAll("[data-copy]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", code.classList.contains("key") ? "Copy the key" : "Copy " + code.textContent);
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    code.after(button);
  }
}

for (const table of document.querySelectorAll("table[data-filter]")) {
  const rows = [...table.tBodies[0].rows];
  if (rows.length < 8) continue;
  const input = document.createElement("input");
  input.type = "search";
  input.className = "filter";
  input.placeholder = table.dataset.filter;
  input.setAttribute("aria-label", table.dataset.filter);
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
  table.before(input);
}

// "/" goes to the search, as in many consoles.
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  const find = document.getElementById("find");
  if (find) {
    event.preventDefault();
    find.focus();
  }
});
