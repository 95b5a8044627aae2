package fake

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
)

const (
	adapterFile = "adapter_model.safetensors"
	// adapted is the matrix that adapters change.
	adapted = "model.layers.0.self_attn.o_proj.weight"
	// adapterRank and adapterScale are the rank of adapters and the factor of their product.
	adapterRank, adapterScale = 2, 2
)

// writeAdapter writes a folder with an adapter of one layer. Its values come from the policy's,
// so that they change with an update.
func writeAdapter(policy *model.Weights, folder string) error {
	sources := policy.Sources()
	of := sources[slices.IndexFunc(sources, func(s checkpoint.Source) bool { return s.Name == adapted })]
	whole := make([]float32, checkpoint.Tensor{Shape: of.Shape}.Len())
	if err := of.Write(whole); err != nil {
		return err
	}
	write := checkpoint.Filled(func(dst []float32) { copy(dst, whole) })
	name := "base_model.model.model.layers.0.self_attn.o_proj.lora_"
	return errors.Join(os.WriteFile(filepath.Join(folder, "adapter_config.json"),
		[]byte(`{"r":2,"lora_alpha":4}`), 0o644),
		checkpoint.WriteFile(filepath.Join(folder, adapterFile), []checkpoint.Source{
			{Name: name + "A.weight", Shape: []int{adapterRank, of.Shape[1]}, Write: write},
			{Name: name + "B.weight", Shape: []int{of.Shape[0], adapterRank}, Write: write},
		}, nil))
}

// weights returns the weights of a folder, or the policy with the folder's adapter. The caller
// frees them.
func (r *rank) weights(folder string) (*model.Weights, error) {
	w, err := model.NewWeights(r.dev, r.policy.Config, npu.Weights)
	if err != nil {
		return nil, err
	}
	if _, missing := os.Stat(filepath.Join(folder, adapterFile)); missing == nil {
		err = adapt(w, r.policy, folder)
	} else {
		err = w.Load(folder)
	}
	if err != nil {
		w.Free()
		return nil, err
	}
	return w, nil
}

// adapt sets w to the policy with an adapter.
func adapt(w, policy *model.Weights, folder string) error {
	f, err := checkpoint.OpenFile(filepath.Join(folder, adapterFile))
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	var halves [2][]float32
	for i, name := range f.Names() {
		t, _ := f.Tensor(name)
		halves[i] = make([]float32, t.Len())
		if err := t.Float32s(halves[i]); err != nil {
			return err
		}
	}
	sources := policy.Sources()
	for i, s := range sources {
		if s.Name != adapted {
			continue
		}
		sources[i].Write = func(dst []float32) error {
			if err := s.Write(dst); err != nil {
				return err
			}
			cols := s.Shape[1]
			for at := range dst {
				for k := range adapterRank {
					dst[at] += adapterScale * halves[1][at/cols*adapterRank+k] * halves[0][k*cols+at%cols]
				}
			}
			return nil
		}
	}
	dir, err := os.MkdirTemp("", "easyrl-fake-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the system empties its folder
	if err := checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), sources, nil); err != nil {
		return err
	}
	return w.Load(dir)
}
