"""Deploys trained models: export to ONNX, compression, measurement on a device, and serving.

It works on bundles, the folders that an export writes. `workbench.runs` finds the trial of a run
and launches the runs that search a compression. `workbench.runs.automl` exports the ensemble of an
AutoML result.

- Writing a bundle: `exported_bundle`, `exported_model`, `onnx_export`, `packed_sequences`, `graph`,
  `table_graph`, `card`, `predict_script`.
- Other formats: `formats`, `engine_formats`, `text_models`.
- Predicting: `predictor`, `feeds`, `lengths`, `rows`, `image_files`, `distributions`.
- Models with early exits: `stages`, `stage_export`.
- On the device: `device`, `device_runner`.
"""
