package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/internal/splitmix"
)

// adapterError is the largest error of a server under a perturbed adapter, relative to the
// adapter's effect on the log-probabilities. With 4 and 28 layers, arithmetic in bfloat16 gave
// at most 0.06, and a kind of layer that the server leaves out at least 0.24.
const adapterError = 0.125

// adapter is a published version of an adapter, as PEFT's folder.
type adapter struct {
	*file
	config []byte
}

// Config returns the contents of adapter_config.json.
func (a *adapter) Config() []byte { return a.config }

// openAdapter reads an adapter's folder once to compute the checksum of both files.
func openAdapter(dir string, version int64) (*adapter, error) {
	f, err := openFile(filepath.Join(dir, publish.AdapterFile), version)
	if err != nil {
		return nil, err
	}
	config, err := filetype.Read(filepath.Join(dir, publish.AdapterConfig))
	if err != nil {
		return nil, err
	}
	f.checksum = fmt.Sprintf("%016x", xxh3.HashString(f.checksum+string(config)))
	return &adapter{f, config}, nil
}

// perturbAdapter replaces the values of the adapter in dir by others that only the names of its
// tensors, their shapes and the weights in the folder start determine. The product of a
// layer's two matrices is about as large as the layer's weights, so that each layer counts.
// All values are exact in bfloat16.
func perturbAdapter(start, dir string) error {
	scale, err := adapterScale(dir)
	if err != nil {
		return err
	}
	base, err := checkpoint.OpenFolder(start)
	if err != nil {
		return err
	}
	defer base.Close() //nolint:errcheck // only read
	path := filepath.Join(dir, publish.AdapterFile)
	f, err := checkpoint.OpenFile(path)
	if err != nil {
		return err
	}
	var sources []checkpoint.Source
	for _, name := range f.Names() {
		t, _ := f.Tensor(name)
		if len(t.Shape) != 2 {
			return errors.Join(fmt.Errorf("adapter: %s has shape %v, expected a matrix", name, t.Shape), f.Close())
		}
		layer, half, _ := strings.Cut(strings.TrimPrefix(name, "base_model.model."), ".lora_")
		size, key := 1/math.Sqrt(float64(t.Shape[1])), xxh3.HashString(name)
		if strings.HasPrefix(half, "B") {
			size *= gain(base, layer+".weight") / scale
		}
		sources = append(sources, checkpoint.Source{Name: name, Shape: t.Shape,
			Write: checkpoint.Filled(func(dst []float32) {
				for i := range dst {
					v := size * math.Sqrt(3) * (float64(float64(splitmix.At(key, uint64(i))>>11)/(1<<52)) - 1)
					dst[i] = math.Float32frombits(math.Float32bits(float32(v)) &^ 0xffff)
				}
			})})
	}
	if err := f.Close(); err != nil {
		return err
	}
	return checkpoint.WriteFile(path, sources, map[string]string{"format": "pt"})
}

// adapterScale returns the factor of the product of two matrices of the adapter in dir.
func adapterScale(dir string) (float64, error) {
	var config struct {
		Rank  float64 `json:"r"`
		Alpha float64 `json:"lora_alpha"`
	}
	text, err := filetype.Read(filepath.Join(dir, publish.AdapterConfig))
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err == nil && !(config.Rank > 0 && config.Alpha > 0) {
		err = fmt.Errorf("r is %v and lora_alpha %v, expected more than 0", config.Rank, config.Alpha)
	}
	if err != nil {
		return 0, fmt.Errorf("adapter: %s: %w", publish.AdapterConfig, err)
	}
	return config.Alpha / config.Rank, nil
}

// gain estimates, from a sample of a matrix's values, the standard deviation of its products with
// vectors of standard deviation 1. A matrix that the folder does not name gets 1.
func gain(f *checkpoint.WeightFiles, name string) float64 {
	t, ok := f.Tensor(name)
	if !ok || len(t.Shape) != 2 || t.Len() == 0 {
		return 1
	}
	const parts, each = 16, 256
	vals := make([]float32, min(each, t.Len()))
	sum, n := 0.0, 0
	for part := range parts {
		if err := t.ReadAt(vals, part*(t.Len()-len(vals))/parts); err != nil {
			return 1
		}
		for _, v := range vals {
			sum, n = sum+float64(float64(v)*float64(v)), n+1
		}
	}
	if sum == 0 || math.IsNaN(sum) || math.IsInf(sum, 0) {
		return 1
	}
	return math.Sqrt(sum / float64(n) * float64(t.Shape[1]))
}
