"""A compiled reader of flat JSON objects: many values to the cells of typed columns.

It takes only what it is sure of. A value that it does not take is not bad: it goes to those who
know more (`json_fast`, and the judge). What it takes has the meaning that the judge gives it.
"""
