package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/report/advice"
)

// Instances that compute the trainer's bits show no mismatch, whether or not top_p and top_k cut
// the distribution.
func TestExpectedMismatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		set  func(c *configs.Config)
		want float64
	}{
		{"embedded", func(*configs.Config) {}, advice.ExactBand},
		{"embedded, cut", func(c *configs.Config) { c.Rollout.TopP, c.Rollout.TopK = 0.9, 20 }, advice.ExactBand},
		{"easyrl servers, cut", func(c *configs.Config) {
			c.Inference.Endpoints, c.Inference.Kind, c.Rollout.TopP = []string{"http://127.0.0.1:1"}, "easyrl", 0.9
		}, advice.ExactBand},
		{"vLLM", func(c *configs.Config) { c.Inference.Kind = "vllm" }, advice.ServerBand},
		{"PyTorch ranks", func(c *configs.Config) { c.Train.Backend = configs.PyTorch }, advice.ServerBand},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := configs.Default()
			c.set(&cfg)
			require.InDelta(t, c.want, adviceOn(&cfg).Band, 0)
		})
	}
}
