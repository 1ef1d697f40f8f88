"use strict";
const figures = JSON.parse(document.getElementById("figures").textContent);
const config = {
  responsive: true,
  displaylogo: false,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
};
const pagePixels = 690;
for (const [id, figure] of Object.entries(figures)) {
  Plotly.newPlot(id, figure.data, figure.layout, config);
}
const resizeAll = (layout) => {
  for (const id of Object.keys(figures)) {
    Plotly.relayout(id, layout);
  }
};
addEventListener("beforeprint", () => resizeAll({ width: pagePixels, autosize: false }));
addEventListener("afterprint", () => resizeAll({ width: null, autosize: true }));
