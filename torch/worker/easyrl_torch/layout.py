"""Layouts: forests of token segments that share prefixes, as the trainer sends them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


class LayoutError(ValueError):
    """A layout that breaks a rule of Layout."""


@dataclass(frozen=True)
class Layout:
    """The rows of one forward pass, without padding, and the targets that they predict.

    A row attends to the rows of its own segment up to itself and to all rows of the segment's
    ancestors. Arrays are int64 and must not change.
    """

    tokens: np.ndarray  # [rows] token ids
    positions: np.ndarray  # [rows] position in the row's own sequence, from 0 at its root
    segments: np.ndarray  # [segments, 3] start, length, parent (-1: root); parents come before children
    rows: np.ndarray  # [targets] row whose hidden state predicts the target
    targets: np.ndarray  # [targets] token id to predict

    @classmethod
    def build(cls, tokens, positions, segments, rows, targets, vocabulary: int | None = None,
              max_positions: int | None = None) -> Layout:
        """Returns the layout of the five arrays; segments may be flat.

        Raises LayoutError for the first fault. Token ids must be below vocabulary and positions
        below max_positions, where given.
        """
        flat = _vector("segments", segments)
        if flat.size % 3:
            raise LayoutError(f"layout: segments has {flat.size} numbers, expected a multiple of 3")
        layout = cls(_vector("tokens", tokens), _vector("positions", positions), flat.reshape(-1, 3),
                     _vector("rows", rows), _vector("targets", targets))
        layout._check_segments()
        layout._check_rows(vocabulary, max_positions)
        layout._check_targets(vocabulary)
        return layout

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.tokens)

    @cached_property
    def segment_of(self) -> np.ndarray:
        """[rows] segment of each row."""
        return np.repeat(np.arange(len(self.segments)), self.segments[:, 1])

    @cached_property
    def paths(self) -> list[list[int]]:
        """The segments from the root to each segment, itself included."""
        paths: list[list[int]] = []
        for i, (_, _, parent) in enumerate(self.segments):
            paths.append((paths[parent] if parent >= 0 else []) + [i])
        return paths

    @cached_property
    def roots(self) -> np.ndarray:
        """[segments] root of each segment."""
        return np.array([path[0] for path in self.paths], np.int64)

    @cached_property
    def subtrees(self) -> tuple[np.ndarray, np.ndarray]:
        """[rows] number of the row's segment in depth-first order, and the number after its last descendant's.

        A segment is another's ancestor, or the same, if the other's number is in its range.
        """
        sizes = np.ones(len(self.segments), np.int64)
        parents = self.segments[:, 2].tolist()
        for i in range(len(sizes) - 1, -1, -1):
            if parents[i] >= 0:
                sizes[parents[i]] += sizes[i]
        enter, free, root = np.zeros_like(sizes), np.zeros_like(sizes), 0
        for i, parent in enumerate(parents):
            if parent < 0:
                enter[i], root = root, root + sizes[i]
            else:
                enter[i], free[parent] = free[parent], free[parent] + sizes[i]
            free[i] = enter[i] + 1
        return enter[self.segment_of], (enter + sizes)[self.segment_of]

    def path_rows(self, segment: int) -> np.ndarray:
        """The rows of the sequence from the root to the end of segment."""
        spans = self.segments[self.paths[segment], :2]
        return np.concatenate([np.arange(start, start + length) for start, length in spans])

    def _check_segments(self) -> None:
        next_row = 0
        for i, (start, length, parent) in enumerate(self.segments):
            if start != next_row:
                raise LayoutError(f"layout: segment {i} starts at row {start}, expected {next_row}")
            if not 0 <= length <= len(self) - start:
                raise LayoutError(f"layout: segment {i} has {length} rows, expected 0 to {len(self) - start}")
            if not -1 <= parent < i:
                raise LayoutError(f"layout: segment {i} has parent {parent}, expected an earlier segment or -1")
            next_row += length
        if next_row != len(self):
            raise LayoutError(f"layout: segments hold {next_row} rows, expected {len(self)}")

    def _check_rows(self, vocabulary: int | None, max_positions: int | None) -> None:
        _same_length("positions", self.positions, "tokens", self.tokens)
        ends = np.zeros(len(self.segments), np.int64)
        for i, (start, length, parent) in enumerate(self.segments):
            first = ends[parent] if parent >= 0 else 0
            ends[i] = first + length
            wrong = np.flatnonzero(self.positions[start:start + length] != np.arange(first, first + length))
            if wrong.size:
                row = start + wrong[0]
                raise LayoutError(f"layout: row {row} of segment {i} has position {self.positions[row]}, "
                                  f"expected {first + wrong[0]}")
        _in_range("token", self.tokens, vocabulary)
        _in_range("position", self.positions, max_positions)

    def _check_targets(self, vocabulary: int | None) -> None:
        _same_length("targets", self.targets, "rows", self.rows)
        _in_range("target", self.targets, vocabulary)
        _in_range("row of target", self.rows, len(self))


@dataclass(frozen=True)
class Separate:
    """The targets of a layout as independent sequences."""

    sequences: list[np.ndarray]  # token ids of each, up to the last row that predicts a target
    sequence: np.ndarray  # [targets] sequence of each target
    row: np.ndarray  # [targets] position in that sequence that predicts the target


def separate(layout: Layout) -> Separate:
    """Returns the sequences, each with its own copy of the shared prefix, that predict layout's targets.

    A target that several sequences could predict belongs to the first of them.
    """
    leaf_of = _first_leaves(layout)[layout.segment_of[layout.rows]]
    leaves, sequence = np.unique(leaf_of, return_inverse=True)
    row = layout.positions[layout.rows]
    sequences = []
    for i, leaf in enumerate(leaves):
        last = row[sequence == i].max()
        sequences.append(layout.tokens[layout.path_rows(leaf)[:last + 1]])
    return Separate(sequences, sequence.reshape(-1), row)


def _first_leaves(layout: Layout) -> np.ndarray:
    """[segments] the first leaf below each segment; a leaf's is itself."""
    leaf = np.arange(len(layout.segments))
    for i in range(len(layout.segments) - 1, -1, -1):
        parent = layout.segments[i, 2]
        if parent >= 0:
            leaf[parent] = leaf[i]
    return leaf


def _vector(name: str, values) -> np.ndarray:
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise LayoutError(f"layout: {name} are {array.dtype}, expected integers")
    return array.reshape(-1).astype(np.int64)


def _same_length(name: str, array: np.ndarray, other: str, expected: np.ndarray) -> None:
    if len(array) != len(expected):
        raise LayoutError(f"layout: {len(array)} {name}, expected {len(expected)}, the number of {other}")


def _in_range(name: str, array: np.ndarray, limit: int | None) -> None:
    wrong = array < 0 if limit is None else (array < 0) | (array >= limit)
    if wrong.any():
        i = int(np.argmax(wrong))
        below = "0 or more" if limit is None else f"0 to {limit - 1}"
        raise LayoutError(f"layout: {name} {i} is {array[i]}, expected {below}")
