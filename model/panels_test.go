package model

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
)

// A header cannot make the sum allocate memory beyond the stream's values.
func TestSumStreamRefusesWideRows(t *testing.T) {
	header := `{"a":{"dtype":"F32","shape":[1,9000000000000],"data_offsets":[0,36000000000000]}}`
	s, err := checkpoint.NewStream(
		strings.NewReader(string(binary.LittleEndian.AppendUint64(nil, uint64(len(header))))+header), -1)
	require.NoError(t, err)
	_, err = SumStream(s)
	require.ErrorContains(t, err, "tensor a has shape [1 9000000000000], expected at most 1048576 columns")
}

// A header that declares the wrong panel shape gives an error.
func TestSumStreamRefusesOtherPanels(t *testing.T) {
	header :=
		`{"__metadata__":{"easyrl.layout":"panels-32"},"a":{"dtype":"F32","shape":[2,3,7],"data_offsets":[0,168]}}`
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	s, err := checkpoint.NewStream(bytes.NewReader(append(file, make([]byte, 168)...)), -1)
	require.NoError(t, err)
	_, err = SumStream(s)
	require.EqualError(t, err, "tensor a has shape [2 3 7], expected panels of 32 rows")
}
