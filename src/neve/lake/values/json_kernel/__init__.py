"""A compiled reader of flat JSON objects: many values to the cells of typed columns.

It takes only values that it certainly decodes as the reference decoder does. Other values are not
bad: they go to `json_fast` and the reference decoder.
"""
