"""Frames: what is sent arrives, and everything else is one ProtocolError."""

import json
import random
import socket
import struct
import threading

import numpy as np
import pytest

from easyrl_torch import wire


def pair(silence=5.0):
    a, b = socket.socketpair()
    return wire.Connection(a, silence), b


def frame(header, arrays=b"", magic=b"ERLT", version=1, header_length=None, array_length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(
        "<4sIII", magic, version,
        len(text) if header_length is None else header_length,
        len(arrays) if array_length is None else array_length,
    ) + text + arrays


def receive(data, close=True):
    connection, peer = pair()
    sender = threading.Thread(target=lambda: (peer.sendall(data), close and peer.shutdown(socket.SHUT_WR)))
    sender.start()
    try:
        return connection.receive()
    finally:
        connection.close()
        try:
            sender.join()
        finally:
            peer.close()


def test_round_trip():
    a, b = pair()
    other = wire.Connection(b, 5)
    a.send("forward", {"tokens": np.arange(5, dtype=np.int32), "none": np.zeros(0, np.float32), "g": np.ones(3, np.float32)}, id=7)
    a.send("beat")
    a.send("backward", {"gradient": np.zeros(0, np.float32)}, id=8)
    got = other.receive()
    assert (got.kind, got.fields) == ("forward", {"id": 7})
    assert got.arrays["tokens"].tolist() == [0, 1, 2, 3, 4]
    assert got.array("g", "f32").tolist() == [1, 1, 1] and got.array("none", "f32").size == 0
    assert other.receive().kind == "beat"
    assert other.receive().arrays == {}
    a.close()
    assert other.receive() is None
    other.close()


def test_a_large_frame_arrives_whole():
    a, b = pair()
    values = np.arange(3_000_000, dtype=np.float32)
    sender = threading.Thread(target=a.send, args=("logprobs", {"policy": values}))
    sender.start()
    got = wire.Connection(b, 5).receive()
    sender.join()
    np.testing.assert_array_equal(got.arrays["policy"], values)
    a.close()


def test_frames_of_several_threads_do_not_mix():
    a, b = pair()
    other = wire.Connection(b, 5)
    senders = [
        threading.Thread(target=lambda n=n: [a.send("beat", {"v": np.full(500, n, np.int32)}, n=n) for _ in range(50)])
        for n in range(4)
    ]
    for sender in senders:
        sender.start()
    for _ in range(200):
        got = other.receive()
        assert set(got.arrays["v"].tolist()) == {got.fields["n"]}
    for sender in senders:
        sender.join()
    a.close()
    other.close()


ARRAYS = {"kind": "x", "arrays": [["a", "i32", 2]]}


@pytest.mark.parametrize("name, data", [
    ("magic", frame({"kind": "beat"}, magic=b"HTTP")),
    ("version", frame({"kind": "beat"}, version=2)),
    ("header above its limit", frame(b"", header_length=(1 << 20) + 1)),
    ("largest header length", frame(b"", header_length=(1 << 32) - 1)),
    ("arrays above their limit", frame({"kind": "x"}, array_length=(1 << 30) + 1)),
    ("cut off in the prefix", frame({"kind": "beat"})[:9]),
    ("cut off in the header", frame({"kind": "beat"})[:-3]),
    ("cut off in the arrays", frame(ARRAYS, b"\0" * 7, array_length=8)),
    ("a large length and few bytes", frame({"kind": "x", "arrays": [["a", "i32", 1 << 28]]}, b"1234", array_length=1 << 30)),
    ("no JSON", frame(b"{kind}")),
    ("no UTF-8", frame(b'{"kind":"\xff"}')),
    ("NaN", frame(b'{"kind":"x","scale":NaN}')),
    ("no object", frame([1])),
    ("no kind", frame({"id": 1})),
    ("kind of another type", frame({"kind": 1})),
    ("deep nesting", frame(b"[" * 100_000)),
    ("long number", frame(b'{"kind":"x","n":' + b"9" * 100_000 + b"}")),
    ("arrays is no list", frame({"kind": "x", "arrays": 1})),
    ("array of another type", frame({"kind": "x", "arrays": [["a", "f64", 1]]}, b"\0" * 4)),
    ("unhashable type", frame({"kind": "x", "arrays": [["a", {}, 1]]}, b"\0" * 4)),
    ("negative count", frame({"kind": "x", "arrays": [["a", "i32", -1], ["b", "i32", 2]]}, b"\0" * 4)),
    ("count of another type", frame({"kind": "x", "arrays": [["a", "i32", True]]}, b"\0" * 4)),
    ("fractional count", frame({"kind": "x", "arrays": [["a", "i32", 1.0]]}, b"\0" * 4)),
    ("counts below the length", frame(ARRAYS, b"\0" * 12)),
    ("counts above the length", frame(ARRAYS, b"\0" * 4)),
    ("arrays without a list", frame({"kind": "x"}, b"\0" * 4)),
    ("one name twice", frame({"kind": "x", "arrays": [["a", "i32", 1], ["a", "i32", 1]]}, b"\0" * 8)),
])
def test_faults_are_protocol_errors(name, data):
    with pytest.raises(wire.ProtocolError):
        receive(data)


def test_arrays_are_checked_before_they_are_read():
    connection, peer = pair()
    peer.sendall(frame(ARRAYS, array_length=1 << 29))
    with pytest.raises(wire.ProtocolError):
        connection.receive()
    connection.close()
    peer.close()


def test_silence():
    connection, peer = pair(silence=0.05)
    with pytest.raises(wire.Silence):
        connection.receive()
    with pytest.raises(wire.Silence):
        connection.send("x", {"a": np.zeros(10_000_000, np.float32)})
    connection.close()
    peer.close()


def test_random_bytes_and_mutated_frames():
    rng = random.Random(1)
    good = frame({"kind": "forward", "id": 1, "arrays": [["tokens", "i32", 4], ["g", "f32", 2]]}, bytes(24))
    for _ in range(400):
        if rng.random() < 0.3:
            data = rng.randbytes(rng.randrange(200))
        else:
            data = bytearray(good)
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            data = bytes(data[: rng.randrange(len(data) + 1)])
        try:
            got = receive(data)
        except wire.ProtocolError:
            continue
        assert got is None or isinstance(got, wire.Message)


def test_fields_have_types():
    message = wire.Message("step", {"scale": 1, "update": 2, "clip": True, "lr": "x"})
    assert message.get("scale", float) == 1.0 and message.get("update", int) == 2
    for name, kind in [("clip", float), ("clip", int), ("lr", float), ("none", str), ("update", bool)]:
        with pytest.raises(wire.ProtocolError):
            message.get(name, kind)
    with pytest.raises(wire.ProtocolError):
        message.array("gradient", "f32")


def test_non_finite_fields_are_not_sent():
    connection, peer = pair()
    with pytest.raises(ValueError):
        connection.send("stepped", norm=float("nan"))
    connection.close()
    peer.close()


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x"])
def test_addresses(address):
    with pytest.raises(ValueError):
        wire.dial(address, 0)
