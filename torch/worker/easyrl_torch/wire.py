"""Frames between the trainer and a rank.

A frame is a fixed prefix, a JSON header and the raw values of its arrays. The reader accepts
nothing but well-formed frames within limits: any other byte raises ProtocolError.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Mapping

import numpy as np

MAGIC = b"ERLT"
VERSION = 1
MAX_HEADER = 1 << 20  # bytes
MAX_ARRAYS = 1 << 30  # bytes, all arrays of a frame together

_PREFIX = struct.Struct("<4sIII")  # magic, version, bytes of the header, bytes of the arrays
_CHUNK = 1 << 20  # bytes that one read asks for, so that memory follows what has arrived
_TYPES = {"i32": np.dtype("<i4"), "f32": np.dtype("<f4")}
_NAMES = {np.dtype("<i4"): "i32", np.dtype("<f4"): "f32"}


class ProtocolError(Exception):
    """The peer sent something that is not a frame, or not one that belongs here."""


class Silence(Exception):
    """The peer sent nothing, or took nothing, for too long."""


@dataclass
class Message:
    """One frame: its kind, the other fields of its header, and its arrays, one-dimensional int32 or float32."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def get(self, name: str, kind: type) -> Any:
        """Returns a field that must be there with that type. An integer passes for a float."""
        value = self.fields.get(name)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise ProtocolError(f"{self.kind}: {name} is {value!r:.80}, expected {kind.__name__}")
        return value

    def array(self, name: str, dtype: str) -> np.ndarray:
        """Returns an array that must be there with that type, "i32" or "f32"."""
        value = self.arrays.get(name)
        if value is None or value.dtype != _TYPES[dtype]:
            raise ProtocolError(f"{self.kind}: array {name} is missing or not {dtype}")
        return value


class Connection:
    """A connection to the trainer. Any thread may send; one thread receives."""

    def __init__(self, sock: socket.socket, silence: float | None = None) -> None:
        """Takes over sock. A read or write without progress for `silence` seconds raises Silence."""
        self._sock = sock
        self._sending = threading.Lock()
        self.set_silence(silence)

    def set_silence(self, seconds: float | None) -> None:
        """Sets the limit for reads and writes that start from now on."""
        self._sock.settimeout(seconds)

    def send(self, kind: str, arrays: Mapping[str, np.ndarray] | None = None, **fields: Any) -> None:
        """Sends one frame. Arrays are int32 or float32. Frames of several threads do not mix."""
        head, values = encode(kind, fields, arrays or {})
        with self._sending:
            self._write(head)
            for value in values:
                self._write(value)

    def receive(self) -> Message | None:
        """Returns the next frame, or None if the peer closed the connection between frames."""
        prefix = self._read(_PREFIX.size, optional=True)
        if prefix is None:
            return None
        header_bytes, array_bytes = parse_prefix(prefix)
        kind, fields, layout = parse_header(self._read(header_bytes), array_bytes)
        return Message(kind, fields, parse_arrays(layout, self._read(array_bytes)))

    def close(self) -> None:
        """Closes the connection, which ends a receive of another thread."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._sock.close()

    def _write(self, data: bytes | memoryview) -> None:
        view = memoryview(data).cast("B")
        while view:
            try:
                sent = self._sock.send(view)
            except TimeoutError:
                raise Silence(f"the peer took nothing for {self._sock.gettimeout():g} s") from None
            view = view[sent:]

    def _read(self, count: int, optional: bool = False) -> bytearray | None:
        """Reads count bytes. At the end of the stream it returns None if optional and nothing was read."""
        data = bytearray()
        while len(data) < count:
            try:
                part = self._sock.recv(min(count - len(data), _CHUNK))
            except TimeoutError:
                raise Silence(f"the peer sent nothing for {self._sock.gettimeout():g} s") from None
            if not part:
                if optional and not data:
                    return None
                raise ProtocolError(f"the connection closed after {len(data)} of {count} bytes")
            data += part
        return data


def encode(kind: str, fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> tuple[bytes, list[memoryview]]:
    """Returns prefix and header as bytes, and the arrays' bytes, which share memory with contiguous arrays."""
    header = dict(fields, kind=kind)
    values = []
    if arrays:
        listed = []
        for name, value in arrays.items():
            value = np.ascontiguousarray(value)
            if value.dtype not in _NAMES:
                raise ProtocolError(f"{kind}: array {name} is {value.dtype}, expected int32 or float32")
            listed.append([name, _NAMES[value.dtype], value.size])
            if value.size:
                values.append(memoryview(value.reshape(-1)).cast("B"))
        if values:
            header["arrays"] = listed
    text = json.dumps(header, allow_nan=False).encode()
    total = sum(len(value) for value in values)
    if len(text) > MAX_HEADER or total > MAX_ARRAYS:
        raise ProtocolError(f"{kind}: header of {len(text)} and arrays of {total} bytes, expected at most {MAX_HEADER} and {MAX_ARRAYS}")
    return _PREFIX.pack(MAGIC, VERSION, len(text), total) + text, values


def parse_prefix(prefix: bytes | bytearray) -> tuple[int, int]:
    """Returns the lengths of header and arrays."""
    magic, version, header, arrays = _PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise ProtocolError(f"magic is {bytes(magic)!r}, expected {MAGIC!r}")
    if version != VERSION:
        raise ProtocolError(f"version of the protocol is {version}, expected {VERSION}")
    if header > MAX_HEADER or arrays > MAX_ARRAYS:
        raise ProtocolError(f"header of {header} and arrays of {arrays} bytes, expected at most {MAX_HEADER} and {MAX_ARRAYS}")
    return header, arrays


def parse_header(text: bytes | bytearray, array_bytes: int) -> tuple[str, dict[str, Any], list[tuple[str, str, int]]]:
    """Returns kind, other fields, and name, type and count of each array, whose sizes add up to array_bytes."""
    try:
        header = json.loads(text.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as err:
        raise ProtocolError(f"header is not JSON: {err}") from None
    if not isinstance(header, dict) or not isinstance(header.get("kind"), str):
        raise ProtocolError("header is not an object with a kind")
    kind, listed = header.pop("kind"), header.pop("arrays", [])
    if not isinstance(listed, list):
        raise ProtocolError(f"{kind}: arrays is {listed!r:.80}, expected a list")
    layout = [_parse_array(kind, entry) for entry in listed]
    if len({name for name, _, _ in layout}) != len(layout):
        raise ProtocolError(f"{kind}: two arrays have one name")
    total = 4 * sum(count for _, _, count in layout)
    if total != array_bytes:
        raise ProtocolError(f"{kind}: arrays of {total} bytes are listed, expected {array_bytes}")
    return kind, header, layout


def _parse_array(kind: str, entry: Any) -> tuple[str, str, int]:
    if isinstance(entry, list) and len(entry) == 3:
        name, dtype, count = entry
        if isinstance(name, str) and isinstance(dtype, str) and dtype in _TYPES and type(count) is int and count >= 0:
            return name, dtype, count
    raise ProtocolError(f'{kind}: array is listed as {entry!r:.80}, expected ["name", "i32" or "f32", count]')


def parse_arrays(layout: list[tuple[str, str, int]], data: bytes | bytearray) -> dict[str, np.ndarray]:
    """Returns the arrays, which share memory with data."""
    arrays, start = {}, 0
    for name, dtype, count in layout:
        arrays[name] = np.frombuffer(data, _TYPES[dtype], count, start)
        start += 4 * count
    return arrays


def dial(address: str, limit: float = 120) -> socket.socket:
    """Connects to host:port and tries again for `limit` seconds."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"address is {address!r}, expected host:port")
    end = time.monotonic() + limit
    while True:
        try:
            sock = socket.create_connection((host.strip("[]"), int(port)), timeout=10)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as err:
            if time.monotonic() > end:
                raise ConnectionError(f"connect to {address}: {err}") from err
            time.sleep(0.5)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
