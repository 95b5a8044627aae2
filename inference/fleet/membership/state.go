package membership

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/easyrl/easyrl/report"
)

const (
	// keptFile is what a run's folder has of its instances.
	keptFile = "instances.json"
	// mostOut bounds the servers that are known to have been taken out.
	mostOut = 1000
)

// kept is what a run knows of its instances when it is started again. It is safe
// for concurrent use.
type kept struct {
	path  string // empty where nothing is kept
	notes *report.Notes

	mu sync.Mutex
	of keeping
}

type keeping struct {
	Run string   `json:"run"`       // names the run to servers
	Out []string `json:"taken_out"` // servers that were drained or removed, the newest last
}

// openKept reads what the folder of a run has; empty is no folder.
func openKept(folder string, notes *report.Notes) (*kept, error) {
	k := &kept{notes: notes}
	if folder != "" {
		k.path = filepath.Join(folder, keptFile)
		data, err := os.ReadFile(k.path)
		if err == nil {
			err = json.Unmarshal(data, &k.of)
		}
		if err == nil && k.of.Run == "" {
			err = errors.New("no run")
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("instances: %s: %w, expected what the run wrote; without the file it begins anew", k.path, err)
		}
	}
	if k.of.Run == "" {
		k.of.Run = rand.Text()
	}
	return k, nil
}

// isOut reports whether somebody took a server out, and it has not come since.
func (k *kept) isOut(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.of.Out, id)
}

// setOut keeps whether a server is taken out.
func (k *kept) setOut(id string, out bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.Contains(k.of.Out, id) == out {
		return
	}
	k.of.Out = slices.DeleteFunc(k.of.Out, func(o string) bool { return o == id })
	if out {
		k.of.Out = append(k.of.Out, id)
		k.of.Out = k.of.Out[max(0, len(k.of.Out)-mostOut):]
	}
	k.write()
}

// save writes what is kept into the run's folder, which is there.
func (k *kept) save() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.write()
}

// write is save with k locked.
func (k *kept) write() {
	if k.path == "" {
		return
	}
	data, err := json.Marshal(k.of)
	if err == nil {
		err = report.ReplaceFile(k.path, append(data, '\n'))
	}
	if err != nil {
		k.notes.Say("instances: %v; servers that were taken out may come again when the run is started again", err)
	}
}
