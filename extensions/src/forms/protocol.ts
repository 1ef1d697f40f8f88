// What the form and the kernel say to each other. The kernel is the truth: the form sends what was asked for,
// and shows the state that comes back. Numbers that are not finite travel as text.
import type { Figure } from "../figures";
import type { Problem } from "../types";

export type { Problem } from "../types";

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type Mapping = Record<string, Json>;
export type PartName = "model" | "data" | "space" | "advice" | "run" | "result";
export type Language = "yaml" | "python";
export type Slow =
  | "model" | "data" | "samples" | "advice" | "what_if" | "preflight" | "start" | "result" | "export" | "extend"
  | "enqueue" | "stop_advice" | "file";

/** From the form. Each is sent with a `number` that rises; a state says which one it answers. */
export type Said =
  | { type: "hello"; parts: PartName[] }
  | { type: "edit"; changes: [string, Json][]; removals: string[]; label: string }
  | { type: "remove"; path: string }
  | { type: "rename"; path: string; name: string }
  /** An empty text gives up what was typed. */
  | { type: Language; text: string }
  | { type: "undo" | "redo" }
  | { type: "preset"; name: string }
  | { type: "open"; path: string }
  | { type: "save"; path: string; overwrite: boolean }
  | { type: "address"; address: string | null }
  | { type: "ask"; part: Slow; question: number; arguments: Mapping };

export type FieldKind = "number" | "whole" | "choice" | "text" | "switch" | "duration" | "size" | "names" | "mapping";

export interface Field {
  path: string;
  label: string;
  kind: FieldKind;
  unit?: string | null;
  help?: string | null;
  low?: number | null;
  high?: number | null;
  /** Whether the bound itself is refused. */
  low_open?: boolean;
  high_open?: boolean;
  /** All that is allowed of a choice; of a text, what is likely. */
  choices?: Json[] | null;
  allows_auto?: boolean;
  /** Whether null is a value of it, other than the default. */
  allows_none?: boolean;
  default: Json;
  /** As written; null where it is the default. */
  value: Json;
  is_searched?: boolean;
  /** Whether anything reads it as things stand; true where nothing is said. */
  applies?: boolean;
}

export interface Section {
  name: string;
  title: string;
  help?: string | null;
  fields: Field[];
  /** Of a list whose items have these fields: how many there are, at least, and what the next would begin as. */
  list?: { num_items: number; least: number; next: Mapping };
}

/** A model, a data set or a preset that can be chosen. */
export interface Named {
  name: string;
  help?: string | null;
}

export interface FormState {
  type: "state";
  revision: number;
  /** The last message of this form that is contained in it. */
  answered?: number;
  /** The experiment as it would be written, with what is wrong in it. */
  document: Mapping;
  /** Whether the document is one that pictures can be made of; else they show the last that was. */
  is_experiment: boolean;
  problems: Problem[];
  yaml: string;
  yaml_problem: Problem | null;
  python: string;
  python_problem: Problem | null;
  hash: string | null;
  command: string;
  can_undo: boolean;
  undo_label?: string | null;
  can_redo: boolean;
  saved_path?: string | null;
  /** Whether the file there says what the document says. */
  is_saved?: boolean;
  /** Of the cluster that it is meant for; null for this machine. */
  address?: string | null;
  /** What a person should know, such as that the class in a cell has changed. */
  notes?: string[];
  sections: Section[];
  models: Named[];
  datasets: Named[];
  presets: Named[];
}

export interface PartAnswer {
  type: "part";
  name: Slow;
  question: number;
  status: "working" | "done" | "failed";
  progress?: string | null;
  picture?: unknown;
  problem?: Problem | null;
}

export type Told = FormState | PartAnswer;

export interface Layer {
  name: string;
  kind: string;
  depth: number;
  output_shape: (number | string)[] | null;
  /** With those of what lies in it. */
  num_parameters: number;
  /** The layer whose parameters it uses; empty where it has its own. */
  shares?: string;
}

/** What a worker holds at the peak of a step, and of what. */
export interface Memory {
  micro_batch: number;
  bytes: number;
  parts: Record<string, number>;
  fits?: boolean;
  /** The largest micro batch that fits. */
  largest_micro_batch?: number | null;
  words?: string | null;
}

export interface ModelPicture {
  layers: Layer[];
  num_parameters: number;
  flops_per_sample: number | null;
  memory: Memory | null;
  problems: Problem[];
  /** What it is, where it has no layers. */
  words?: string | null;
}

export type Sample =
  | { kind: "image"; png: string; target: Json }
  | { kind: "row"; cells: Mapping; target: Json }
  | { kind: "text"; text: string; target: Json };

export interface DataPicture {
  name: string;
  task: string;
  sizes: { train: number; validation: number | null; test: number | null };
  input_shape: number[] | null;
  class_names: string[] | null;
  class_counts: number[] | null;
  /** How many train samples were looked at. */
  num_counted?: number | null;
  /** Of a regression. */
  target_histogram?: { edges: number[]; counts: number[] } | null;
  samples: Sample[];
  load_samples_per_s: number | null;
  needed_samples_per_s: number | null;
  warnings: string[];
}

/** What would be sampled of one parameter: a histogram, or how often each choice. */
export interface Sampled {
  name: string;
  kind: "range" | "choices";
  edges?: number[];
  choices?: Json[];
  counts: number[];
  /** Part of the configurations in which it exists, from 0 to 1. */
  exists_share: number;
}

export interface SamplesPicture {
  num_samples: number;
  parameters: Sampled[];
}

/** One setting that an advice would change. */
export interface Advised {
  path: string;
  label: string;
  now: Json;
  value: Json;
  reason?: string | null;
  /** Paths of what it replaces: a parameter that is then searched no more. */
  removals?: string[];
}

export interface AdvicePicture {
  /** The card in lines; empty where there is none yet. */
  card: string[];
  figures: { name: string; title: string; figure: Figure }[];
  apply: Advised[];
  /** What can be asked of the fitted models; paths are names of arguments. */
  controls: Field[];
}

/** A predicted number with its interval; words where the fit does not reach so far. */
export interface Predicted {
  value: number | null;
  low?: number | null;
  high?: number | null;
  words?: string | null;
}

export interface WhatIfPicture {
  samples_per_s: Predicted;
  step_time_s: Predicted;
  memory_bytes: Predicted;
  fits: boolean | null;
  time_to_target_s: Predicted;
  words?: string | null;
  /** What the answer does not know, each in a sentence. */
  limits?: string[];
}

export interface PreflightPicture {
  lines: string[];
  problems: Problem[];
  forecast: string[];
}

export interface StartedPicture {
  /** Empty where the run is kept where this notebook does not look. */
  run_id: string;
  /** What is to be said of such a run. */
  words?: string;
  /** HTML that our own Python wrote and escaped, for where nothing live can be shown. */
  snapshot?: string | null;
}

export interface Row {
  trial: number;
  state: string;
  values: Record<string, number | string>;
  params: Mapping;
  duration_s?: number | null;
}

export interface ResultPicture {
  run_id: string;
  state: string;
  /** How many trials are in which state, in words. */
  counts?: string;
  metric: string;
  best: Row | null;
  /** What the configuration of defaults came to, or why that is not known. */
  default_comparison: {
    words: string;
    default: Row | null;
    enqueue: Mapping | null;
    try_it?: { command: string; python: string } | null;
  } | null;
  leaderboard: Row[];
  commands: { label: string; command: string; python: string }[];
}

/** The whole of what a part shows, by its name. */
export interface Pictures {
  model: ModelPicture;
  data: DataPicture;
  samples: SamplesPicture;
  advice: AdvicePicture;
  what_if: WhatIfPicture;
  preflight: PreflightPicture;
  start: StartedPicture;
  result: ResultPicture;
  /** In words: what was done. */
  export: { words: string };
  extend: { words: string };
  enqueue: { words: string };
  stop_advice: { words: string };
  file: { words: string };
}
