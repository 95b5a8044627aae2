package run

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/easyrl/easyrl/checkpoint"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// compareCheckpoints names the tensors of checkpoint a whose values are not those of checkpoint b, with the first such
// value. It returns "" if there is none.
func compareCheckpoints(a, b string) (text string, err error) {
	var files []string
	for _, s := range trimodel.StoredIn(b) {
		if !slices.Contains(files, s.File) {
			files = append(files, s.File)
		}
	}
	tensors := 0
	for _, file := range files {
		first, count, err := compareFiles(filepath.Join(a, file), filepath.Join(b, file))
		if err != nil {
			return "", err
		}
		if tensors += count; text == "" && first != "" {
			text = file + ": " + first
		}
	}
	if tensors > 1 {
		text += fmt.Sprintf(" (%d tensors differ)", tensors)
	}
	return text, nil
}

// compareFiles compares the tensors of two safetensors files. first describes the first one that differs, and count
// is the number of those.
func compareFiles(a, b string) (first string, count int, err error) {
	was, err := checkpoint.OpenFile(a)
	if err != nil {
		return "", 0, err
	}
	defer was.Close() //nolint:errcheck // only read
	now, err := checkpoint.OpenFile(b)
	if err != nil {
		return "", 0, err
	}
	defer now.Close() //nolint:errcheck // only read
	for _, name := range now.Names() {
		want, _ := now.Tensor(name)
		got, found := was.Tensor(name)
		text := ""
		if !found || !slices.Equal(got.Shape, want.Shape) {
			text = fmt.Sprintf("tensor %s has shape %v, recomputed %v", name, got.Shape, want.Shape)
		} else if text, err = compareTensors(got, want); err != nil {
			return "", 0, err
		}
		if text != "" {
			count++
			if first == "" {
				first = text
			}
		}
	}
	return first, count, nil
}

// compareTensors describes the first value of tensor a that is not that of tensor b, which has the same shape. It
// returns "" if there is none.
func compareTensors(a, b checkpoint.Tensor) (text string, err error) {
	was, now := make([]float32, a.Len()), make([]float32, b.Len())
	if err := a.Float32s(was); err != nil {
		return "", err
	}
	if err := b.Float32s(now); err != nil {
		return "", err
	}
	first, count := 0, 0
	for i := range was {
		if math.Float32bits(was[i]) != math.Float32bits(now[i]) {
			if count++; count == 1 {
				first = i
			}
		}
	}
	if count == 0 {
		return "", nil
	}
	place := fmt.Sprint(first)
	if len(a.Shape) == 2 {
		place = fmt.Sprintf("%d, %d", first/a.Shape[1], first%a.Shape[1])
	}
	text = fmt.Sprintf("%s[%s] is %v, recomputed %v", a.Name, place, was[first], now[first])
	if count > 1 {
		text += fmt.Sprintf(", and %d other values differ", count-1)
	}
	return text, nil
}
