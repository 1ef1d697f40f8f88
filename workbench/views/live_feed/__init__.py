"""The live feed of runs: front ends send subscriptions, and receive updates as binary frames.

A `Feed` reads the store once for all front ends. A `FrameBuilder` turns the subscription of one
front end into frames that contain only what changed, limited to what a screen and a connection can
handle. Transport is left to the server and the widgets, drawing to `extensions/`.

- Messages: `protocol`, `action_messages`.
- Reading and sending: `feed`, `run_tail`, `updates`.
- Runs: `run_summaries`, `chart`, `analysis`, `chosen_model`, `available_actions`.
- Trials: `trial_table`, `trial_detail`, `trial_log`.
- Machines: `machines`, `machine_history`.
- Tiers: `tiers_session`, `tiers_picture`, `tiers_journal`.
"""
