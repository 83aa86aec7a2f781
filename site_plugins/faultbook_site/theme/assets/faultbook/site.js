// Small things on every page: search boxes lead to the search overlay, checklists are remembered.
(() => {
  "use strict";

  const query = document.querySelector(".md-search__input");
  const toggle = document.getElementById("__search");
  if (query) {
    query.addEventListener("paste", (event) => {
      const pasted = event.clipboardData && event.clipboardData.getData("text");
      if (!pasted || !pasted.trim().includes("\n")) return; // one line is pasted as it is: the search worker reads it
      event.preventDefault();
      const line = pasted.split("\n").find((l) => /error|fail|timed? ?out|nan|abort|kill/i.test(l)) || pasted.split("\n")[0];
      query.value = line.trim();
      query.dispatchEvent(new Event("keyup", { bubbles: true }));
      query.dispatchEvent(new Event("input", { bubbles: true }));
    });
    query.addEventListener("input", (event) => { // the theme listens to keys only: pasted by mouse, a line would wait for one
      if (event.inputType === "insertFromPaste") query.dispatchEvent(new Event("keyup", { bubbles: true }));
    });
  }

  function openSearch(text) {
    if (!query || !toggle) return false;
    if (!toggle.checked) toggle.click();
    query.focus();
    query.value = text;
    query.dispatchEvent(new Event("keyup", { bubbles: true }));
    return true;
  }

  for (const form of document.querySelectorAll(".fb-find")) {
    const input = form.querySelector("input");
    if ("fromPath" in form.dataset) {
      input.value = location.pathname.replace(/index\.html$|\.(html|md|json)$/g, "").split(/[/_-]+/).slice(1)
        .filter((w) => w && w !== "entries").join(" ");
    }
    form.addEventListener("submit", (event) => {
      if (openSearch(input.value)) event.preventDefault();
    });
    input.addEventListener("input", () => {
      if (input.value.length > 1 && openSearch(input.value)) input.value = "";
    });
  }

  for (const list of document.querySelectorAll(".fb-check")) {
    const key = "faultbook.check." + list.dataset.entry;
    let done = [];
    try { done = JSON.parse(localStorage.getItem(key)) || []; } catch { /* private window */ }
    for (const box of list.querySelectorAll("input[data-check]")) {
      box.checked = done.includes(box.dataset.check);
      box.addEventListener("change", () => {
        const now = [...list.querySelectorAll("input:checked")].map((b) => b.dataset.check);
        try { localStorage.setItem(key, JSON.stringify(now)); } catch { /* private window */ }
      });
    }
  }
  // One copy button per code block. Material's own puts each into an unnamed landmark.
  for (const block of document.querySelectorAll(".highlight")) {
    const code = block.querySelector("pre > code");
    if (!code || !navigator.clipboard) continue;
    const copy = document.createElement("button");
    copy.type = "button";
    copy.className = "fb-copy";
    copy.textContent = "Copy";
    copy.addEventListener("click", () => {
      navigator.clipboard.writeText(code.textContent.replace(/\n$/, ""));
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    });
    block.append(copy);
  }
  for (const frame of document.querySelectorAll(".md-content pre")) frame.tabIndex = 0; // hand-written pages
})();
