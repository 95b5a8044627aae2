package models

import (
	"math"
	"path/filepath"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/internal/splitmix"
	"github.com/easyrl/easyrl/model"
)

// perturb writes random weights with the names and shapes of those in start to dir and returns
// the file's path. A value depends only on its tensor's name and its index. The weights are
// scaled so that attention prefers some positions and no softmax saturates. All values are
// exact in bfloat16.
func perturb(start, dir string, shape *model.Config) (path string, err error) {
	f, err := checkpoint.OpenFolder(start)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	var sources []checkpoint.Source
	for _, name := range f.Names() {
		t, _ := f.Tensor(name)
		key, draw := xxh3.HashString(name), drawOf(name, t.Shape, shape)
		sources = append(sources, checkpoint.Source{Name: name, Shape: t.Shape, Write: func(dst []float32) {
			for i := range dst {
				x := float64(splitmix.At(key, uint64(i))>>11)/(1<<52) - 1 // -1 to 1
				dst[i] = math.Float32frombits(math.Float32bits(float32(draw(x))) &^ 0xffff)
			}
		}})
	}
	path = filepath.Join(dir, "model.safetensors")
	return path, checkpoint.WriteFile(path, sources, map[string]string{"format": "pt"})
}

// drawOf returns a function that maps a uniform draw from -1 to 1 to a value of a tensor.
func drawOf(name string, dims []int, shape *model.Config) func(x float64) float64 {
	if len(dims) < 2 && !strings.HasSuffix(name, ".bias") { // norms
		if strings.HasPrefix(shape.Type, "gemma") { // its norms multiply by 1 + weight
			return func(x float64) float64 { return math.Copysign(1, x) - 1 }
		}
		return func(x float64) float64 { return math.Copysign(1, x) }
	}
	deviation := deviationOf(name, dims, shape) * math.Sqrt(3)
	return func(x float64) float64 { return deviation * x }
}

// deviationOf returns the standard deviation of a tensor's values.
func deviationOf(name string, dims []int, shape *model.Config) float64 {
	in := 1.0
	if len(dims) > 1 {
		in = math.Sqrt(float64(dims[len(dims)-1]))
	}
	stream := 2 / math.Sqrt(float64(shape.HiddenSize)) // gives logits a standard deviation of 2
	for _, rule := range []struct {
		part string
		std  float64
	}{
		{".q_proj.bias", 1.5}, {".k_proj.bias", 1.5}, {".bias", 0.5},
		{".q_proj.", 1.25 / in}, {".k_proj.", 1.25 / in}, {".v_proj.", 1 / in}, {".o_proj.", 0.8 * stream / in},
		{".gate_proj.", 1 / in}, {".up_proj.", 1 / in}, {".down_proj.", 0.6 * stream / in}, {".gate.", 1.25 / in},
		{"embed", stream}, {"lm_head", stream},
	} {
		if strings.Contains(name, rule.part) {
			return rule.std
		}
	}
	return 1 / in
}
