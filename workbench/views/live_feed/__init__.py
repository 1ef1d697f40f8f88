"""The live feed of runs: front ends send subscriptions, and receive updates as binary frames.

`protocol` defines the messages. A `Feed` reads the store once for all front ends. A `FrameBuilder`
turns the subscription of one front end into frames that contain only what changed, limited to what
a screen and a connection can handle. Transport is left to the server and the widgets, drawing to
`extensions/`.
"""
