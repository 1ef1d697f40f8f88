// The services of JupyterLab that the workbench uses where they are: every one is optional.
// Notebook 7 has no side bars and no launcher, Voila lacks whole packages: then a token is undefined.
import { ILabShell, ILayoutRestorer, type JupyterFrontEnd } from "@jupyterlab/application";
import { ICommandPalette } from "@jupyterlab/apputils";
import { ILauncher } from "@jupyterlab/launcher";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import { IStateDB } from "@jupyterlab/statedb";
import type { Token } from "@lumino/coreutils";

export interface Services {
  app: JupyterFrontEnd;
  labShell?: ILabShell;
  restorer?: ILayoutRestorer;
  palette?: ICommandPalette;
  launcher?: ILauncher;
  settingRegistry?: ISettingRegistry;
  stateDB?: IStateDB;
}

type Name = Exclude<keyof Services, "app">;

const TOKENS: [Name, Token<unknown> | undefined][] = [
  ["labShell", ILabShell],
  ["restorer", ILayoutRestorer],
  ["palette", ICommandPalette],
  ["launcher", ILauncher],
  ["settingRegistry", ISettingRegistry],
  ["stateDB", IStateDB],
];

const present = TOKENS.filter((entry): entry is [Name, Token<unknown>] => entry[1] !== undefined);

/** The tokens to ask for. */
export const optionalTokens = present.map(([, token]) => token);

/** Give the services that came their names; they come in the order of `optionalTokens`. */
export function namedServices(app: JupyterFrontEnd, came: unknown[]): Services {
  const named = present.map(([name], index) => [name, came[index] ?? undefined]);
  return { app, ...Object.fromEntries(named) };
}
