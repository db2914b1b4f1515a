"""Values of AMQP 1.0, of every type, for Hypothesis."""

from hypothesis import strategies as st

from protocols.amqp10 import types as t


def _ints(cls, bits: int, signed: bool):
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    near = st.integers(max(low, -130), min(high, 300))
    return (near | st.integers(low, high)).map(cls)


ASCII = st.text(st.characters(max_codepoint=127), max_size=300)
TEXT = st.text(max_size=300)
BY_KIND = {
    "null": st.none(),
    "boolean": st.booleans(),
    "ubyte": _ints(t.UByte, 8, False),
    "ushort": _ints(t.UShort, 16, False),
    "uint": _ints(t.UInt, 32, False),
    "ulong": _ints(t.ULong, 64, False),
    "byte": _ints(t.Byte, 8, True),
    "short": _ints(t.Short, 16, True),
    "int": _ints(t.Int, 32, True),
    "long": _ints(int, 64, True),
    "float": st.floats(width=32, allow_nan=False).map(t.Float),
    "double": st.floats(allow_nan=False),
    "decimal32": st.binary(min_size=4, max_size=4).map(t.Decimal32),
    "decimal64": st.binary(min_size=8, max_size=8).map(t.Decimal64),
    "decimal128": st.binary(min_size=16, max_size=16).map(t.Decimal128),
    "char": st.characters(exclude_categories=["Cs"]).map(t.Char),
    "timestamp": _ints(t.Timestamp, 64, True),
    "uuid": st.uuids(),
    "binary": st.binary(max_size=300),
    "string": TEXT,
    "symbol": ASCII.map(t.Symbol),
}
SCALARS = st.one_of(*BY_KIND.values())
ARRAYS = st.sampled_from(sorted(BY_KIND)).flatmap(
    lambda kind: st.lists(BY_KIND[kind], max_size=5).map(lambda items: t.Array(kind, items))
)


def _deeper(children):
    return (
        st.lists(children, max_size=5)
        | st.dictionaries(BY_KIND["symbol"] | BY_KIND["string"], children, max_size=5)
        | st.builds(t.Described, BY_KIND["ulong"] | BY_KIND["symbol"], children)
        | st.lists(st.lists(children, max_size=3), max_size=3).map(lambda rows: t.Array("list", rows))
        | st.lists(ARRAYS, max_size=3).map(lambda rows: t.Array("array", rows))
    )


VALUES = st.recursive(SCALARS | ARRAYS, _deeper, max_leaves=20)
