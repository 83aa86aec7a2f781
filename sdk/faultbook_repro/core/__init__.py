"""What decides how a run is made and judged.

The digest of this folder is part of every proof's key: a change here means that all
entries are to be proven again. Tables, options and files written live outside.
"""
