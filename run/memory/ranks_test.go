package memory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/model/arch"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/trainer"
)

// The memory of ranks counts where they run.
func TestNeedOfRanks(t *testing.T) {
	t.Parallel()
	shape, err := arch.ParseConfig([]byte(tiny))
	require.NoError(t, err)
	cfg := configs.Default()
	cfg.Parallel.PP, cfg.Parallel.DP, cfg.Inference.Instances = 2, 2, 0
	tokens := Tokens{Leaf: 50, Step: 5000}
	of := func(p parallel.Process, sft bool) Need {
		return Of(&cfg, shape, engine.Config{MaxRunning: 1}, tokens, sft, p)
	}
	all, one := of(parallel.Process{Size: 1}, false), of(parallel.Process{Size: 4, LocalSize: 2}, false)
	require.Len(t, all.Ranks, 4)
	require.Equal(t, all.Ranks, one.Ranks)
	require.Equal(t, 4, all.Here)
	require.Equal(t, 1, one.Here)
	require.Equal(t, 1250, all.Rows, "a step of 4 lanes")
	whole := 4 * shape.NumParams()
	require.Zero(t, all.Whole, "no instance in this process")
	tensor := int64(4 * 32 * 48)
	require.Equal(t, 3*whole+4*16*32*3+tensor, all.Saved,
		"parts of the first replica, with the embedding twice, and a tensor on its way")
	require.Equal(t, 2*tensor, all.Sent)
	cfg.Inference.Instances = 1
	require.Equal(t, 2*whole, of(parallel.Process{Size: 1}, false).Whole)
	cfg.Inference.Instances = 0
	require.Equal(t, all.Ranks[0].Weights+2*all.Ranks[1].Weights, one.Weights+2*one.Ranks[1].Weights)
	require.Equal(t, 2*all.Ranks[0].Pass, all.Ranks[0].Activations, "the first of two stages")
	require.Equal(t, 1, all.Ranks[3].InFlight)
	require.Equal(t, all.Ranks[3].Pass, all.Ranks[3].Activations)
	tied := all.Ranks[0].Weights + all.Ranks[2].Weights - 3*whole
	require.EqualValues(t, 3*4*16*32, tied, "both stages have the embedding")
	sft := of(parallel.Process{Size: 1}, true)
	require.Zero(t, sft.Whole)
	require.Equal(t, 1250, sft.Rows)
	require.Equal(t, all.Ranks[0].Weights, 3*sft.Ranks[0].Weights)
	cfg.Device.Kind = "./other.so"
	onDevice := of(parallel.Process{Size: 1}, false)
	require.Equal(t, onDevice.Certain(), all.Saved+all.Sent)
}

func TestCheckOfRanks(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	each := Rank{Weights: 3 * gib, Gradients: gib, Moments: gib, Activations: 2 * gib, Pass: gib}
	n := Need{Copies: 3, Weights: 6 * gib, Whole: 4 * gib, WholeCopies: 2, Gradients: 2 * gib, Moments: 2 * gib,
		Activations: 4 * gib, Rows: 4096, Here: 2, Ranks: []Rank{each, each, each}, localSize: 1}
	check := func(bytes int64) (warned string, err error) {
		err = n.Check(Limit{bytes, "this machine"},
			func(format string, args ...any) { warned += fmt.Sprintf(format, args...) })
		return warned, err
	}
	_, err := check(10 * gib)
	require.EqualError(t, err, "the run needs 14.0 GiB of memory, expected at most 10.0 GiB, the memory of this "+
		"machine: weights of 2 ranks 6.0 GiB (3 copies), "+
		"whole weights 4.0 GiB (2 copies), gradients 2.0 GiB, optimizer 2.0 GiB, checkpoints 0 bytes. Choose a "+
		"smaller model, or start the ranks on several machines.")
	warned, err := check(17 * gib)
	require.NoError(t, err)
	require.Contains(t, warned, ": a pass over 4096 tokens takes up to 1.0 GiB. Lower")
	warned, err = check(18 * gib)
	require.NoError(t, err)
	require.Empty(t, warned)
	n.Here, n.localSize = 1, 3
	warned, err = check(31 * gib)
	require.NoError(t, err)
	require.Equal(t, "the run's processes on this machine may need 32.0 GiB of memory, more than the 31.0 GiB of "+
		"this machine: rank 0's 18.0 GiB and 14.0 GiB of 2 others. "+
		"Start fewer ranks on each machine.", warned)
	warned, err = check(32 * gib)
	require.NoError(t, err)
	require.Empty(t, warned)
}

func TestMicroBatchRows(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		dp, pp      int
		minibatches int
		micro       int
		sft         bool
		want        int
	}{
		{"one rank", 1, 1, 1, 4096, false, 4096}, // 32 leaves of 996 rows
		{"four lanes", 2, 2, 1, 100_000, false, 7968},
		{"two updates", 2, 2, 2, 100_000, false, 3984},
		{"leaves are not cut", 1, 4, 1, 100, false, 996},
		{"supervised", 2, 2, 1, 4096, true, 4096},
		{"four supervised lanes", 2, 2, 3, 100_000, true, 7968},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := configs.Default()
			cfg.Parallel.DP, cfg.Parallel.PP, cfg.Train.Minibatches, cfg.Train.MicroBatchTokens = test.dp, test.pp,
				test.minibatches, test.micro
			cfg.Rollout.PromptsPerStep, cfg.Rollout.GroupSize, cfg.Rollout.MaxTokens = 32, 8, 120
			var tokens Tokens
			tokens.AddPrompt(36, 1000, &cfg)
			require.Equal(t, Tokens{Sequence: 36 + 120, Leaf: 996, Step: 32 * 996}, tokens)
			require.Equal(t, test.want, tokens.MicroBatchRows(&cfg, test.sft))
		})
	}
}

// A leaf has at most the rows of attention.LeafRows, or of one demonstration.
func TestLeaf(t *testing.T) {
	t.Parallel()
	cfg := configs.Default()
	cfg.Rollout.PromptsPerStep, cfg.Rollout.GroupSize, cfg.Rollout.MaxTokens = 2, 8, 1001
	var tokens Tokens
	tokens.AddPrompt(96, 10_000, &cfg)
	require.Equal(t, Tokens{Sequence: 96 + 1001, Leaf: 4096, Step: 2 * (96 + 8*1001)}, tokens)
	sft := Demonstrations([]trainer.Demonstration{
		{Prompt: make([]int32, 30), Spans: rollout.Demonstrated(make([]int32, 70))},
		{Prompt: make([]int32, 40), Spans: rollout.Demonstrated(make([]int32, 20))}}, 64)
	require.Equal(t, Tokens{Sequence: 100, Leaf: 512, Step: 6400}, sft)
}
