"""What somebody who watches runs sees: looks one way, pictures the other, whoever carries them.

`protocol` is what is said; a `watch` follows the store for all who look; a `painter` turns the looks of one
front end into frames, each with only what changed, and no more than a screen and a wire can take. How frames
travel is left to the server and the widgets, drawing to the front end in `extensions/`.
"""
