"""Writes NAME.parquet and NAME.jsonl, the same records as pyarrow reads them
back. Needs: pip install pyarrow. Run in this folder: python golden.py"""
import base64
import datetime
import decimal
import json
import math
import random

import pyarrow as pa
import pyarrow.parquet as pq

R = random.Random(11)
WORDS = ["", "a", "What is 2+3?", "日本 😀", "line\nbreak \"quoted\"", "x" * 300, "\\boxed{\\frac{1}{2}}"]
MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])


def text():
    return R.choice(WORDS)


def maybe(make, rate=0.25):
    return None if R.random() < rate else make()


def verl(i):
    turns = [dict(role="system", content="Think.")] if i % 3 == 0 else []
    return dict(data_source="openai/gsm8k", prompt=turns + [dict(role="user", content=f"{text()} {i}")], ability="math",
                reward_model=dict(style="rule", ground_truth=str(i)), extra_info=dict(split="train", index=i))


VERL = pa.schema([("data_source", pa.string()), ("prompt", pa.list_(MESSAGE)), ("ability", pa.string()),
                  ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
                  ("extra_info", pa.struct([("split", pa.string()), ("index", pa.int64())]))])
NESTED = pa.schema([
    ("id", pa.int64()),
    ("lists", pa.list_(pa.list_(pa.int32()))),
    ("structs", pa.list_(pa.struct([("a", pa.string()), ("b", pa.list_(pa.string())), ("c", pa.struct([("d", pa.float64())]))]))),
    ("deep", pa.struct([("x", pa.struct([("y", pa.list_(pa.struct([("z", pa.bool_())])))]))])),
    ("map", pa.map_(pa.string(), pa.list_(pa.int32()))),
    ("tools", pa.list_(pa.string())),
])


def nested(i):
    return dict(
        id=i, lists=maybe(lambda: [maybe(lambda: [maybe(lambda: R.randrange(-5, 5)) for _ in range(R.randrange(3))]) for _ in range(R.randrange(4))]),
        structs=maybe(lambda: [maybe(lambda: dict(a=maybe(text), b=maybe(lambda: [maybe(text) for _ in range(R.randrange(3))]),
                                                  c=maybe(lambda: dict(d=maybe(R.random))))) for _ in range(R.randrange(4))]),
        deep=maybe(lambda: dict(x=maybe(lambda: dict(y=maybe(lambda: [maybe(lambda: dict(z=maybe(lambda: R.random() < .5))) for _ in range(R.randrange(3))]))))),
        map=maybe(lambda: [(f"k{j}", maybe(lambda: [j])) for j in range(R.randrange(3))]),
        tools=maybe(lambda: [text() for _ in range(R.randrange(3))]))


TYPES = pa.schema([
    ("bool", pa.bool_()), ("i8", pa.int8()), ("i16", pa.int16()), ("i32", pa.int32()), ("i64", pa.int64()), ("u8", pa.uint8()), ("u16", pa.uint16()),
    ("u32", pa.uint32()), ("u64", pa.uint64()), ("f16", pa.float16()), ("f32", pa.float32()), ("f64", pa.float64()), ("str", pa.string()), ("large", pa.large_string()),
    ("bin", pa.binary()), ("fixed", pa.binary(5)), ("date", pa.date32()), ("ts_ms", pa.timestamp("ms")), ("ts_us", pa.timestamp("us", "UTC")),
    ("dec9", pa.decimal128(9, 2)), ("dec18", pa.decimal128(18, 0)), ("dec38", pa.decimal128(38, 10)), ("nothing", pa.null()), ("dict", pa.dictionary(pa.int32(), pa.string()))])


def types(i):
    def integer(bits, signed):
        return R.choice([0, 1, 2**(bits - signed) - 1, -(2**(bits - 1)) if signed else 7, R.randrange(2**(bits - signed))])

    def real():
        return R.choice([0.0, -0.0, 1.5, 43.0, 0.1, 1e300, math.nan, math.inf, -math.inf, 5e-324])

    row = dict(bool=R.random() < .5, f16=R.choice([0.5, -2.0, 43.0]), f32=R.choice([0.5, -3.25, 43.0, 16777216.0]), f64=real(), str=text(), large=text(), bin=bytes([i, 255, 0]),
               fixed=bytes([i] * 5), date=datetime.date(1960 + i, 2, 28), ts_ms=datetime.datetime(1969, 12, 31, 23, 59, i % 60, 123000),
               ts_us=datetime.datetime(2024, 2, 29, 1, 2, i % 60, 456, tzinfo=datetime.timezone.utc), nothing=None, dict=text(),
               dec9=decimal.Decimal(R.choice(["0.01", "-1234567.89", "7.00"])), dec18=decimal.Decimal(R.choice([0, -5, 10**17])),
               dec38=decimal.Decimal(R.choice(["-0.0000000001", "1234567890123456789012345678.0123456789"])))
    for bits in (8, 16, 32, 64):
        row[f"i{bits}"], row[f"u{bits}"] = integer(bits, 1), integer(bits, 0)
    return {k: maybe(lambda: v, 0.2) for k, v in row.items()}


def plain(value, kind):
    """What the reader makes of a value: JSON has no bytes, no NaN and no dates.
    The text of a decimal here is a number there."""
    if value is None:
        return None
    if isinstance(value, float):
        return None if math.isnan(value) else value if math.isfinite(value) else str(value).replace("inf", "Infinity")
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime):
        text = value.replace(tzinfo=None).isoformat()
        return (text.rstrip("0") if "." in text else text) + ("Z" if value.tzinfo else "")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, dict):
        return {k: plain(v, kind.field(k).type) for k, v in value.items()}
    if isinstance(value, list) and pa.types.is_map(kind):
        return {k: plain(v, kind.item_type) for k, v in value}
    if isinstance(value, list):
        return [plain(v, kind.value_type) for v in value]
    return value


def write(name, schema, rows, **options):
    pq.write_table(pa.Table.from_pylist(rows, schema), f"{name}.parquet", **options)
    table = pq.read_table(f"{name}.parquet", schema=schema)
    with open(f"{name}.jsonl", "w") as f:
        for row in table.to_pylist():
            f.write(json.dumps({k: plain(v, schema.field(k).type) for k, v in row.items()}, ensure_ascii=False, allow_nan=False) + "\n")


FLAT = pa.schema([("id", pa.string()), ("question", pa.string()), ("answer", pa.string()), ("n", pa.int64()), ("x", pa.float64())])
flat = [dict(id=f"r{i}", question=f"{text()} {i % 7}", answer=f"work {i}\n#### {i}", n=i * i - 40, x=i / 8) for i in range(60)]
for codec in ["none", "snappy", "gzip", "zstd", "lz4"]:
    write(f"flat-{codec}", FLAT, flat, compression=codec)
for name, encodings in {"delta": dict(id="DELTA_BYTE_ARRAY", question="DELTA_LENGTH_BYTE_ARRAY", answer="DELTA_BYTE_ARRAY", n="DELTA_BINARY_PACKED", x="BYTE_STREAM_SPLIT"),
                        "plain": dict.fromkeys(FLAT.names, "PLAIN")}.items():
    write(f"flat-{name}", FLAT, flat, use_dictionary=False, column_encoding=encodings, version="2.6")
required = pa.schema([pa.field(f.name, f.type, nullable=False) for f in FLAT])
write("flat-required", required, flat)
write("verl", VERL, [verl(i) for i in range(23)], compression="zstd", row_group_size=10)
write("verl-v2", VERL, [verl(i) for i in range(40)], compression="snappy", data_page_version="2.0", data_page_size=64, write_batch_size=3)
write("nested", NESTED, [nested(i) for i in range(60)], row_group_size=25, data_page_size=64, write_batch_size=4)
write("nested-v2", NESTED, [nested(i) for i in range(40)], data_page_version="2.0", compression="gzip", use_dictionary=False, data_page_size=64, write_batch_size=3)
write("nested-old", NESTED, [nested(i) for i in range(20)], use_compliant_nested_type=False, version="1.0")
write("types", TYPES, [types(i) for i in range(40)])
write("types-int96", pa.schema([("ts", pa.timestamp("us"))]), [dict(ts=datetime.datetime(1970 + i, 1, 2, 3, 4, 5, 6)) for i in range(5)], use_deprecated_int96_timestamps=True)
write("empty", FLAT, [])
pq.write_table(pa.Table.from_pylist(flat[:3], FLAT), "refused-brotli.parquet", compression="brotli")
