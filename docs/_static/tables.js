"use strict";
// A table that is wider than its column fades at the right edge until its last column is in view.
window.addEventListener("DOMContentLoaded", () => {
  const boxes = document.querySelectorAll(".pst-scrollable-table-container, .output_html");
  const mark = box => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
  const watch = new ResizeObserver(entries => entries.forEach(entry => mark(entry.target)));
  for (const box of boxes) {
    watch.observe(box);
    box.addEventListener("scroll", () => mark(box), {passive: true});
  }
});
