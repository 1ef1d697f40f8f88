"use strict";
const shared = JSON.parse(document.getElementById("hover-texts").textContent);
const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
document.body.append(tip);

// Lines are thin: the places around the pointer are tried as well.
const around = [0, 4, -4].flatMap((x) => [0, 4, -4].map((y) => [x, y]));
const markAt = (event) => {
  for (const [x, y] of around) {
    const mark = document.elementFromPoint(event.clientX + x, event.clientY + y)?.closest(".plot [data-h]");
    if (mark) {
      return mark;
    }
  }
  return null;
};
// The path of a line contains the positions of its points in the order of their values.
const nearestPoint = (mark, event) => {
  const { x } = new DOMPoint(event.clientX, event.clientY).matrixTransform(mark.getScreenCTM().inverse());
  const positions = mark.getAttribute("d").match(/-?[\d.]+/g).map(Number);
  const values = mark.dataset.v.split(" ");
  let best = 0;
  for (let at = 0; at < values.length; at += 2) {
    if (Math.abs(positions[at] - x) < Math.abs(positions[best] - x)) {
      best = at;
    }
  }
  return [values[best], values[best + 1]];
};
const textOf = (mark, event) => {
  let head = mark.dataset.h;
  if (mark.dataset.v) {
    const [x, y] = nearestPoint(mark, event);
    head = head.replace("\u2060x\u2060", x).replace("\u2060y\u2060", y);
  }
  return mark.dataset.c ? `${head}\n${shared[Number(mark.dataset.c)]}` : head;
};
let shown = null;
const show = (mark, event) => {
  shown?.classList.remove("pointed");
  shown = mark;
  tip.hidden = !mark;
  if (!mark) {
    return;
  }
  mark.classList.add("pointed");
  tip.textContent = textOf(mark, event);
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const below = event.clientY + 14;
  const top = below + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 14 : below;
  tip.style.transform = `translate(${Math.max(left, 4)}px, ${Math.max(top, 4)}px)`;
};
const save = (plot) => {
  const copy = plot.querySelector("svg").cloneNode(true);
  for (const mark of copy.querySelectorAll("[data-h]")) {
    for (const name of ["data-h", "data-c", "data-v", "class"]) {
      mark.removeAttribute(name);
    }
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
  link.download = `${plot.id}.svg`;
  link.click();
  URL.revokeObjectURL(link.href);
};
for (const plot of document.querySelectorAll(".plot")) {
  plot.addEventListener("pointermove", (event) => show(markAt(event), event));
  plot.addEventListener("pointerleave", (event) => show(null, event));
  const button = document.createElement("button");
  button.textContent = "Save as SVG";
  button.setAttribute("aria-label", `Save as SVG: ${plot.getAttribute("aria-label")}`);
  button.addEventListener("click", () => save(plot));
  plot.closest("figure").querySelector("figcaption").append(" ", button);
}
