"use strict";
// A table or, on a phone, a picture that is wider than its column fades at the right edge until its end is in view.
window.addEventListener("DOMContentLoaded", () => {
  for (const picture of document.querySelectorAll("img.example")) {
    const box = Object.assign(document.createElement("div"), {className: "wide-picture"});
    picture.replaceWith(box);
    box.append(picture);
  }
  const boxes = document.querySelectorAll(".pst-scrollable-table-container, .output_html, .wide-picture");
  const mark = box => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
  const watch = new ResizeObserver(entries => entries.forEach(entry => mark(entry.target)));
  for (const box of boxes) {
    watch.observe(box);
    box.addEventListener("scroll", () => mark(box), {passive: true});
  }
});
