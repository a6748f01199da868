"""What `import turnwise as tw` offers beyond the library: load, run and read back experiments.

`turnwise.PUBLIC` lists the public names; the command line calls the same functions.
"""
