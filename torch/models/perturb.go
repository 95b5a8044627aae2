package models

import (
	"path/filepath"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference/canary"
	"github.com/easyrl/easyrl/model"
)

// perturb writes perturbed weights like those of the folder start to dir and returns the file's
// path.
func perturb(start, dir string, shape *model.Config) (path string, err error) {
	f, err := checkpoint.OpenFolder(start)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	var sources []checkpoint.Source
	for _, name := range f.Names() {
		t, _ := f.Tensor(name)
		cols := 0
		if n := len(t.Shape); n > 1 {
			cols = t.Shape[n-1]
		}
		value := canary.Perturbation(shape, name, cols)
		sources = append(sources, checkpoint.Source{Name: name, Shape: t.Shape, Write: checkpoint.Filled(func(dst []float32) {
			for i := range dst {
				dst[i] = value(i)
			}
		})})
	}
	path = filepath.Join(dir, "model.safetensors")
	return path, checkpoint.WriteFile(path, sources, map[string]string{"format": "pt"})
}
