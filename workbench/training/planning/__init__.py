"""From an experiment and one configuration to the settings of one trial, every `auto` answered.

Nothing here trains or measures: the rooms above hand in what they measured.
"""
