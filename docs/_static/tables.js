"use strict";
// A table that is wider than its column fades at the right edge until its end is in view. Cells of a stacked table are named.
window.addEventListener("DOMContentLoaded", () => {
  const boxes = document.querySelectorAll(".pst-scrollable-table-container, .output_html");
  const mark = box => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
  const watch = new ResizeObserver(entries => entries.forEach(entry => mark(entry.target)));
  for (const table of document.querySelectorAll("table.stacked")) {
    const names = [...table.querySelectorAll("thead th")].map(cell => cell.textContent.trim());
    for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, k) => {
      cell.dataset.label = names[k];
      cell.classList.toggle("none", !cell.textContent.trim());
    });
  }
  addFilter();
  for (const box of boxes) {
    watch.observe(box);
    box.addEventListener("scroll", () => mark(box), {passive: true});
  }
});

// The pages of commands, keys of studies and errors are long: a field shows only the sections that contain its words.
function addFilter() {
  const sections = [...document.querySelectorAll(".bd-article > section > section")];
  if (!/reference\/(commands|study-files|errors)\.html$/.test(location.pathname) || sections.length < 5) return;
  const field = Object.assign(document.createElement("input"), {type: "search", className: "filter", placeholder: "Show only sections with ..."});
  field.setAttribute("aria-label", "Show only sections with these words");
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const one of sections) {
      const text = one.textContent.toLowerCase();
      one.hidden = !words.every(word => text.includes(word));
    }
  });
  sections[0].before(field);
}
