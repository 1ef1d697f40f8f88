"""Old runs of other tools: read from their files, and stored as runs that have ended.

A reader understands the files of one tool and returns `OldRuns`. `formats` recognizes the tool by
its files, `naming` decides names, objective and search space, and `import_runs` stores the runs.
What stored runs are used for is left to the packages that read a store. Nothing is unpickled.
"""
