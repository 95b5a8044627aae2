"""Layouts: what they refuse, and the separate sequences that they stand for."""

import numpy as np
import pytest

from easyrl_torch.layout import Layout, LayoutError, separate
from families import GROUPS, layout

GOOD = dict(tokens=[3, 1, 2, 2], positions=[0, 1, 2, 2], segments=[0, 2, -1, 2, 1, 0, 3, 1, 0], rows=[1, 1, 2],
            targets=[2, 2, 5], vocabulary=6, max_positions=3)


def test_build():
    forest = Layout.build(**GOOD)
    assert len(forest) == 4
    assert forest.segment_of.tolist() == [0, 0, 1, 2]
    assert forest.paths == [[0], [0, 1], [0, 2]]
    assert forest.path_rows(2).tolist() == [0, 1, 3]


@pytest.mark.parametrize("changes, message", [
    (dict(tokens=[3, 1, 2, 6]), "token 3 is 6, expected 0 to 5"),
    (dict(tokens=[3, -1, 2, 2]), "token 1 is -1, expected 0 to 5"),
    (dict(tokens=[3.0, 1, 2, 2]), "tokens are float64, expected integers"),
    (dict(tokens=[3, 1, 2]), "segment 2 has 1 rows, expected 0 to 0"),
    (dict(tokens=[3, 1, 2, 2, 2]), "segments hold 4 rows, expected 5"),
    (dict(positions=[0, 1, 2]), "3 positions, expected 4"),
    (dict(positions=[0, 1, 2, 3]), "row 3 of segment 2 has position 3, expected 2"),
    (dict(max_positions=2), "position 2 is 2, expected 0 to 1"),
    (dict(segments=[0, 2, -1, 2, 2]), "segments has 5 numbers, expected a multiple of 3"),
    (dict(segments=[0, 2, -1, 2, 1, 1, 3, 1, 0]), "segment 1 has parent 1, expected an earlier segment or -1"),
    (dict(segments=[0, 2, -2, 2, 1, 0, 3, 1, 0]), "segment 0 has parent -2"),
    (dict(segments=[0, 2, -1, 1, 1, 0, 3, 1, 0]), "segment 1 starts at row 1, expected 2"),
    (dict(segments=[0, 2, -1, 2, -1, 0, 1, 3, 0]), "segment 1 has -1 rows, expected 0 to 2"),
    (dict(rows=[1, 1, 4]), "row of target 2 is 4, expected 0 to 3"),
    (dict(rows=[1, 1]), "3 targets, expected 2, the number of rows"),
    (dict(targets=[2, 2, 6]), "target 2 is 6, expected 0 to 5"),
])
def test_refuses(changes, message):
    with pytest.raises(LayoutError, match=message):
        Layout.build(**{**GOOD, **changes})


def test_empty():
    forest = Layout.build([], [], [], [], [])
    assert len(forest) == 0 and separate(forest).sequences == []


def test_separate():
    forest = layout(GROUPS)
    parts = separate(forest)
    for i, (row, sequence) in enumerate(zip(parts.row, parts.sequence)):
        segment = forest.segment_of[forest.rows[i]]
        prefix = forest.tokens[forest.path_rows(segment)][:forest.positions[forest.rows[i]] + 1]
        np.testing.assert_array_equal(parts.sequences[sequence][:row + 1], prefix)
    ends = [parts.row[parts.sequence == i].max() + 1 for i in range(len(parts.sequences))]
    assert ends == list(map(len, parts.sequences))
