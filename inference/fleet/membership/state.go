package membership

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/report"
)

const (
	// stateName is the file in a run's folder that records its servers.
	stateName = "instances.json"
	// maxRemoved bounds the number of removed servers in the file.
	maxRemoved = 1000
)

// stateFile records what a resumed run must know about its servers. It contains full URLs, whose
// paths may contain secrets, so only the owner may read the file. Its methods may be called
// concurrently.
type stateFile struct {
	path  string // empty if nothing is kept
	notes *report.Notes

	mu      sync.Mutex
	content state
}

// state is the content of the file.
type state struct {
	Removed []string `json:"taken_out"` // servers that a user drained or removed, newest last
}

// openState reads the file from a run's folder. It starts with an empty list if the file does not
// exist or a crash has damaged it. If folder is empty, nothing is kept.
func openState(folder string, notes *report.Notes) (*stateFile, error) {
	f := &stateFile{notes: notes}
	if folder != "" {
		f.path = filepath.Join(folder, stateName)
		data, err := filetype.Read(f.path)
		if err == nil && report.Damaged(f.path) != "" {
			err = fs.ErrNotExist
		}
		if err == nil {
			_ = os.Chmod(f.path, 0o600) // earlier releases let others read it
			err = json.Unmarshal(data, &f.content)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read instances %s: %w. Delete the file to start with an empty list", f.path, err)
		}
	}
	return f, nil
}

// isRemoved reports whether a user has removed a server and it has not been added since.
func (f *stateFile) isRemoved(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.content.Removed, id)
}

// setRemoved records that a user has removed a server, or, if removed is false, that the server has
// been added again.
func (f *stateFile) setRemoved(id string, removed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(f.content.Removed, id) == removed {
		return
	}
	f.content.Removed = slices.DeleteFunc(f.content.Removed, func(other string) bool { return other == id })
	if removed {
		f.content.Removed = append(f.content.Removed, id)
		f.content.Removed = f.content.Removed[max(0, len(f.content.Removed)-maxRemoved):]
	}
	f.write()
}

// write writes the file to the run's folder, which must exist. f is locked.
func (f *stateFile) write() {
	if f.path == "" {
		return
	}
	data, err := json.Marshal(f.content)
	if err == nil {
		err = report.ReplacePrivateFile(f.path, append(data, '\n'))
	}
	if err != nil {
		f.notes.Say(notice.Warning, "save instances: %v. Removed servers may rejoin if the run restarts", err)
	}
}
