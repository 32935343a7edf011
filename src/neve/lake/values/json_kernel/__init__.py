"""A compiled kernel that decodes flat JSON objects to cells of typed columns.

It takes only values that it decodes exactly as the reference decoder does. All others, good or bad,
are left to `json_fast` and the reference decoder.
"""
