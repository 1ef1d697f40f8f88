"use strict";
const figures = JSON.parse(document.getElementById("figures").textContent);
const config = {
  responsive: true,
  displaylogo: false,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
};
const pagePixels = 690;

// The library is compressed, since the page would be more than twice as large with it as text.
const loadPlotly = async () => {
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (each) => each.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(unpacked).text();
  document.head.append(script);
};
const resizeAll = (layout) => {
  for (const id of Object.keys(figures)) {
    Plotly.relayout(id, layout);
  }
};
const draw = async () => {
  await loadPlotly();
  for (const [id, figure] of Object.entries(figures)) {
    Plotly.newPlot(id, figure.data, figure.layout, config);
  }
  addEventListener("beforeprint", () => resizeAll({ width: pagePixels, autosize: false }));
  addEventListener("afterprint", () => resizeAll({ width: null, autosize: true }));
};
if ("DecompressionStream" in window) {
  draw();
} else {
  for (const id of Object.keys(figures)) {
    document.getElementById(id).textContent = "This browser cannot draw the figure: open the report in one of 2023 or later.";
  }
}
