package ranks

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/parallel"
)

// In BF16 tensor ranks cut attention's chains at multiples of 16 values, whatever they do in FP32.
func TestCheckMeshOfBF16(t *testing.T) {
	t.Parallel()
	shape := &model.Config{Type: "qwen3", HiddenSize: 64, FFNSize: 320, Layers: 6, Heads: 4, KVHeads: 4, HeadDim: 8,
		VocabSize: 200, MaxPositions: 128}
	cfg := configs.Default()
	check := func(numerics string, mesh parallel.Mesh, headDim int) error {
		s := *shape
		s.HeadDim = headDim
		cfg.Device.Numerics, cfg.Parallel.DP, cfg.Parallel.TP, cfg.Parallel.PP = numerics, mesh.DP, mesh.TP, mesh.PP
		return CheckMesh(&cfg, &s)
	}
	four := parallel.Mesh{DP: 1, TP: 4, PP: 1}
	require.NoError(t, check("float32", four, 8))
	require.EqualError(t, check("bf16", four, 8), "[parallel] tp is 4 and a rank has 1 heads of 8 values, expected a "+
		"multiple of 16 values with device.numerics = \"bf16\". The nearest meshes that work: "+
		"dp=2 tp=2 pp=1; dp=1 tp=2 pp=2; dp=4 tp=1 pp=1")
	require.NoError(t, check("bf16", four, 16))
	require.NoError(t, check("bf16", parallel.Mesh{DP: 2, TP: 2, PP: 3}, 8))
	require.ErrorContains(t, check("bf16", parallel.Mesh{DP: 1, TP: 3, PP: 1}, 8), "a rank has 1 heads of 8 values")
	require.NoError(t, check("bf16", parallel.Mesh{DP: 4, TP: 1, PP: 2}, 7))
}
