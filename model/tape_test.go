package model

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
)

// Run with keep needs Load with trained. A layout without targets has nothing to do.
func TestKeepNeedsTrained(t *testing.T) {
	t.Parallel()
	c := shapes()["qwen3"]
	dev := openCPU(t, 1)
	w, tape := testWeights(t, dev, c), NewTape(dev, c)
	defer tape.Close()
	require.NoError(t, tape.Load(testForest(c), false))
	require.Panics(t, func() { _ = tape.Run(w, 1, true, nil, nil) })
	var l attention.Layout
	l.Add(-1, []int32{1}, false)
	require.NoError(t, tape.Forward(w, &l, 1, true, nil, nil))
	g, err := NewGradients(dev, c)
	require.NoError(t, err)
	tape.Backward(w, g, nil, fixed)
}
