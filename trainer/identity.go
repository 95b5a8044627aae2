package trainer

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/internal/filetype"
)

// identityFile is the file in a run's folder that identifies the run.
const identityFile = "identity.json"

// Identity identifies a run across its processes. The run's folder holds it before the run
// claims its first server. It influences no weights and appears in no metrics.
type Identity struct {
	// Run names the run. Each of its checkpoints holds the name.
	Run string `json:"run"`
	// Trainer is the ID with which the run claims servers. Whoever knows it can take them
	// away, so no checkpoint holds it and only the owner may read the file.
	Trainer string `json:"trainer"`
	// Folder is the path for which Trainer was drawn. A copy of the folder has another path
	// and draws its own, so that two runs never share a claim.
	Folder string `json:"folder"`

	found string // content of the file when it was read; empty if there was none
}

// ReadIdentity returns the identity of the run in dir. It draws at random what the folder
// does not hold: Run, unless the run resumes, and Trainer, also in a copy of a folder. A damaged
// file counts as missing. known reports whether Run is from the file. Nothing is written before
// Keep.
func ReadIdentity(dir string, resume bool) (id Identity, known bool, err error) {
	if id.found, err = readIdentity(dir); err != nil {
		return id, false, err
	}
	if json.Unmarshal([]byte(id.found), &id) != nil {
		id = Identity{found: id.found}
	}
	if known = resume && id.Run != ""; !known {
		id.Run = rand.Text()[:12]
	}
	if id.Trainer == "" || id.Folder != realPath(dir) {
		id.Trainer = rand.Text()
	}
	return id, known, nil
}

// Keep makes dir, which exists and is locked, hold the identity durably. It fails if the file has
// changed since ReadIdentity.
func (id *Identity) Keep(dir string) error {
	found, err := readIdentity(dir)
	if err != nil {
		return err
	}
	if found != id.found {
		return fmt.Errorf("run.dir is %q, where another process has started a run in the meantime; repeat the command", dir)
	}
	id.Folder = realPath(dir)
	text, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("keep identity: %w", err)
	}
	if id.found = string(text) + "\n"; id.found == found {
		return nil
	}
	if err := checkpoint.WriteSecret(filepath.Join(dir, identityFile), []byte(id.found)); err != nil {
		return fmt.Errorf("keep identity: %w", err)
	}
	return nil
}

// readIdentity returns the content of the file, "" if there is none.
func readIdentity(dir string) (string, error) {
	text, err := filetype.Read(filepath.Join(dir, identityFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read identity: %w", err)
	}
	return string(text), nil
}

// realPath returns the absolute path of a folder without symbolic links, as far as it exists.
func realPath(dir string) string {
	if path, err := filepath.Abs(dir); err == nil {
		dir = path
	}
	if path, err := filepath.EvalSymlinks(dir); err == nil {
		dir = path
	}
	return dir
}
