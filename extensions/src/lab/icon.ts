// The icon of the workbench: two curves that rise over a bench; it takes the theme's colours.
import { LabIcon } from "@jupyterlab/ui-components";

const DRAWING = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16">
  <g class="jp-icon3 jp-icon-selectable" fill="#616161">
    <path d="M1 1h1.4v10.6H15V13h-2v2h-1.4v-2H4.4v2H3v-2H1z"/>
    <path d="M4 9.5C6 5.5 9.2 3.5 14.4 3.1l.1 1.4C9.8 4.9 7 6.6 5.2 10.1z"/>
    <path d="M6.2 10.5C8.1 9 10.6 8.3 14.4 8.1V6.8C10.9 7 8.2 7.6 6.4 8.7z" opacity=".5"/>
  </g>
</svg>`;

export const workbenchIcon = new LabIcon({ name: "workbench:icon", svgstr: DRAWING });
