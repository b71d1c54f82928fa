"""What Forebay talks about: requests, tokens, ranks, outcomes and limits.

Pure values and functions. Nothing here does I/O, reads a clock or imports another room.
"""
