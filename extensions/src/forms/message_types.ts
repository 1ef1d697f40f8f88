// Names for parts of the generated types.
import type {
  Edit,
  Hello,
  History,
  JsonValue,
  OpenFile,
  Preset,
  Query,
  Remove,
  Rename,
  SaveFile,
  SetAddress,
  WriteText,
  FormState,
  Answer,
  ImageSample,
  Results,
  RowSample,
  TextSample,
  SearchRow,
} from "../types";

export type Json = JsonValue;
export type Mapping = Record<string, JsonValue>;
export type PartName = Hello["parts"][number];
export type Language = WriteText["type"];
export type Kind = SearchRow["kind"];
export type Topic = keyof Results;
export type Sample = ImageSample | RowSample | TextSample;
export type KernelMessage = FormState | Answer;

type WithoutNumber<M> = M extends unknown ? Omit<M, "number"> : never;

/** A message to the kernel, before the connection numbers it. */
export type FormRequest = WithoutNumber<
  Hello | Edit | Remove | Rename | WriteText | History | Preset | OpenFile | SaveFile | SetAddress | Query
>;
