package canary

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/arch"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

// quickstart returns random weights of the quickstart's sizes.
func quickstart(t *testing.T, tied bool) *model.Weights { return random(t, "qwen3", 4, 128, tied) }

// random returns random weights.
func random(t *testing.T, kind string, layers, hidden int, tied bool) *model.Weights {
	shape, err := arch.ParseConfig(
		fmt.Appendf(nil, `{"model_type":%q,"hidden_size":%d,"intermediate_size":%d,"num_hidden_layers":%d,
		"num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,"vocab_size":53,`+
			`"max_position_embeddings":256,"rms_norm_eps":1e-6,
		"rope_theta":10000,"hidden_act":"silu","tie_word_embeddings":%v,"eos_token_id":1,"initializer_range":0.02}`,
			kind, hidden, 3*hidden, layers, tied))
	require.NoError(t, err)
	w := allocate(t, shape)
	require.NoError(t, w.Init(1))
	return w
}

func allocate(t *testing.T, shape *model.Config) *model.Weights {
	dev, err := cpu.Open(npu.FP32, 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	w, err := model.NewWeights(dev, shape, npu.Weights)
	require.NoError(t, err)
	return w
}

// onDisk returns the weights of a folder of the test data.
func onDisk(t *testing.T, name string) *model.Weights {
	dir := filepath.Join(os.Getenv("EASYRL_TESTDATA"), "weights", name)
	shape, err := arch.ReadConfig(dir)
	if err != nil {
		t.Skipf("EASYRL_TESTDATA has no model: %v", err)
	}
	w := allocate(t, shape)
	require.NoError(t, w.Load(dir))
	return w
}

// A server that keeps the values of one tensor, whichever it is, is refused: those that it
// started with, or those of the first update that it took. Without EASYRL_SOAK, a tensor of
// each kind is kept. Under the race detector, two models suffice.
func TestStaleTensorIsRefused(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]func(t *testing.T) *model.Weights{
		"quickstart":   func(t *testing.T) *model.Weights { return quickstart(t, true) },
		"qwen3 untied": func(t *testing.T) *model.Weights { return random(t, "qwen3", 2, 64, false) },
		"qwen2 tied":   func(t *testing.T) *model.Weights { return random(t, "qwen2", 2, 64, true) },
		"llama untied": func(t *testing.T) *model.Weights { return random(t, "llama", 1, 32, false) },
		"stories260K":  func(t *testing.T) *model.Weights { return onDisk(t, "stories260K") },
		"verl":         func(t *testing.T) *model.Weights { return onDisk(t, "verl_digit_completion") },
	} {
		if soak.Race && !strings.HasSuffix(name, " untied") {
			continue
		}
		for _, bf16 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s bf16=%v", name, bf16), func(t *testing.T) {
				t.Parallel()
				testStaleTensors(t, w(t), bf16)
			})
		}
	}
}

// tensors returns the names of a decoder's tensors, without EASYRL_SOAK one of each kind:
// those of a layer are each of another layer.
func tensors(loaded values) []string {
	all := slices.Sorted(maps.Keys(loaded))
	if soak.Long() {
		return all
	}
	layer := regexp.MustCompile(`\.layers\.(\d+)\.`)
	of := map[string][]string{}
	for _, name := range all {
		kind := layer.ReplaceAllString(name, ".")
		of[kind] = append(of[kind], name)
	}
	var some []string
	for i, kind := range slices.Sorted(maps.Keys(of)) {
		some = append(some, of[kind][i%len(of[kind])])
	}
	return some
}

func testStaleTensors(t *testing.T, w *model.Weights, bf16 bool) {
	c, loaded := newClient(t, w.Config, nil), read(w)
	s := serve(t, w.Config, loaded, bf16)
	require.NoError(t, c.publish(c.connect(s), w, 1), "an honest server")
	for _, name := range tensors(loaded) {
		s.restart(loaded)
		s.keeps = func(n string, _ int) bool { return n == name }
		err := c.publish(c.connect(s), w, 1)
		require.ErrorContains(t, err, "an update does not reach every tensor", name)
		require.ErrorContains(t, err, "easyrl_worker.py")

		s.restart(loaded)
		s.keeps = func(n string, update int) bool { return n == name && update > 1 }
		err = c.publish(c.connect(s), w, 1)
		if bf16 && err == nil { // the policy hardly depends on what it attends to
			require.Regexp(t, `self_attn\.[qk]_proj`, name)
			continue
		}
		require.ErrorContains(t, err, "the server computes with other weights", name)
	}
}

// A server is verified with perturbed weights once, and again after a restart or a failure.
func TestVerifiedAgainAfterARestart(t *testing.T) {
	t.Parallel()
	w := random(t, "llama", 1, 32, true)
	c, loaded := newClient(t, w.Config, nil), read(w)
	s := serve(t, w.Config, loaded, false)
	inst := c.connect(s)
	require.NoError(t, c.publish(inst, w, 1))
	require.NoError(t, c.publish(inst, w, 2))
	require.Equal(t, 3, s.updates, "perturbed weights and two versions")

	s.restart(loaded)
	require.NoError(t, c.publish(inst, w, 3))
	require.Equal(t, 2, s.updates)

	s.keeps = func(name string, _ int) bool { return name == headName }
	require.NoError(t, w.Init(2))
	require.ErrorContains(t, c.publish(inst, w, 4), "an update did not arrive")
	require.ErrorContains(t, c.publish(inst, w, 4), "an update does not reach every tensor")
	s.keeps = func(string, int) bool { return false }
	require.NoError(t, c.publish(inst, w, 4))
	require.Equal(t, 6, s.updates)

	_, err := c.connect(s).Publish(t.Context(), model.NewSnapshot(w, 4))
	require.NoError(t, err)
	require.Equal(t, 8, s.updates, "another connection")
}
