package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// Changes returns the keys, in order, whose values differ from the resolved run in dir, each
// as in "train.lr 0.001 (was 1e-06)". It ignores passwords and the run's name and folder. Without a
// resolved run in dir, the result is empty.
func (r *Resolved) Changes(dir string) ([]string, error) {
	before, err := Load([]string{filepath.Join(dir, RunFile)}, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	keys, now := r.all()
	oldKeys, was := before.all()
	for _, key := range oldKeys {
		if _, ok := now[key]; !ok {
			keys = append(keys, key)
		}
	}
	keys = slices.DeleteFunc(keys, func(key string) bool {
		return key == "run.name" || key == "run.dir" || now[key] == was[key]
	})
	for i, key := range keys {
		keys[i] = fmt.Sprintf("%s %s (was %s)", key, brief(now[key]), brief(was[key]))
	}
	return keys, nil
}

// all returns the keys in use, in order, and their values as TOML with passwords hidden.
func (r *Resolved) all() (keys []string, values map[string]string) {
	values = map[string]string{}
	for _, f := range shapeOf(&r.Config).fields {
		if !r.unused(f) {
			keys = append(keys, f.key)
			values[f.key] = shown(f)
		}
	}
	return keys, values
}

// brief shortens a value for a line with several values.
func brief(value string) string {
	const maxRunes = 60
	if value == "" {
		return "not set"
	}
	if runes := []rune(value); len(runes) > maxRunes {
		return string(runes[:maxRunes]) + "…"
	}
	return value
}
