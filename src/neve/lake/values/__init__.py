"""Record values as Arrow columns, decoded in the workers of a Spark job.

`value_format` parses a pipeline's `value:` part. A `ValueFormat` knows or infers the columns, and
decodes every input row to either a good row or a bad one with its reason. `evolution` computes how
a table must change to take fields that it lacks.
"""

from neve.lake.values.evolution import Evolution, evolution, evolved
from neve.lake.values.format_contract import BadValue, Decoded, ValueFormat, decode_strictly
from neve.lake.values.formats import value_format
from neve.lake.values.types import plain_schema

__all__ = [
    "BadValue",
    "Decoded",
    "Evolution",
    "ValueFormat",
    "decode_strictly",
    "evolution",
    "evolved",
    "plain_schema",
    "value_format",
]
