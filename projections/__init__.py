"""Pure folds over events, and the read models made of them.

A fold is a function of events: it reads no clock, no environment and no database, so an auditor can replay a file.
"""
