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

// adapterError is the max. error of a server under a perturbed adapter, relative to the adapter's effect
// on the log-probabilities. In models of 4 and 28 layers, arithmetic in bfloat16 gave at most 0.06, and a
// server that ignores the adapter in one kind of layer at least 0.24.
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

// perturbAdapter replaces the values of the adapter in dir with pseudo-random values. They depend only on
// the names and shapes of its tensors and on the weights in the folder start. The product of a layer's two
// matrices is about as large as the layer's weights, so that each layer has an effect. All values are exact
// in bfloat16.
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
		deviation := 1 / math.Sqrt(float64(t.Shape[1])) // standard deviation of the values
		if strings.HasPrefix(half, "B") {
			deviation *= gain(base, layer+".weight") / scale
		}
		seed := xxh3.HashString(name)
		sources = append(sources, checkpoint.Source{Name: name, Shape: t.Shape,
			Write: checkpoint.Filled(func(dst []float32) {
				for i := range dst {
					// Uniform in [-1, 1), with 53 random bits; its standard deviation is 1/sqrt(3).
					uniform := float64(float64(splitmix.At(seed, uint64(i))>>11)/(1<<52)) - 1
					v := deviation * math.Sqrt(3) * uniform
					dst[i] = math.Float32frombits(math.Float32bits(float32(v)) &^ 0xffff) // cut to bfloat16
				}
			})})
	}
	if err := f.Close(); err != nil {
		return err
	}
	return checkpoint.WriteFile(path, sources, map[string]string{"format": "pt"})
}

// adapterScale returns the factor of the product of a layer's two matrices for the adapter in dir: alpha
// divided by rank.
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

// gain estimates the standard deviation of the products of a matrix with vectors of standard deviation 1,
// from a sample of the matrix's values. It is 1 if the folder has no such matrix, or if the estimate is 0
// or not finite.
func gain(f *checkpoint.WeightFiles, name string) float64 {
	t, ok := f.Tensor(name)
	if !ok || len(t.Shape) != 2 || t.Len() == 0 {
		return 1
	}
	const (
		blocks    = 16  // blocks of the sample, spread over the matrix
		blockSize = 256 // values of a block
	)
	block := make([]float32, min(blockSize, t.Len()))
	squares := 0.0
	n := 0
	for i := range blocks {
		if err := t.ReadAt(block, i*(t.Len()-len(block))/blocks); err != nil {
			return 1
		}
		for _, v := range block {
			squares += float64(float64(v) * float64(v)) // the conversion forbids fusing, which would change bits
			n++
		}
	}
	if squares == 0 || math.IsNaN(squares) || math.IsInf(squares, 0) {
		return 1
	}
	return math.Sqrt(squares / float64(n) * float64(t.Shape[1]))
}
