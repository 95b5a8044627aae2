package trainer

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/internal/plain"
)

// identityFile is the file in a run's folder that identifies the run.
const identityFile = "identity.json"

// Identity identifies a run across its processes. The run's folder holds it before the run
// claims its first server. It influences no weights and appears in no metrics.
type Identity struct {
	// Run names the run. Each of its checkpoints holds the name.
	Run string `json:"run"`
	// Trainer is the ID with which the run claims servers. It is a secret: anyone with it can take the
	// servers over. So no checkpoint holds it, and only the file's owner may read the file.
	Trainer string `json:"trainer"`
	// Folder is the path for which Trainer was drawn. A copy of the folder has another path
	// and draws its own, so that two runs never share a claim.
	Folder string `json:"folder"`

	content string // content of the file when it was last read or written; empty if there was none
}

// ReadIdentity returns the identity of the run in dir. A damaged file counts as missing. A new
// run gets a random name. A resumed run without the file takes the name from the folder's
// checkpoints; ReadIdentity fails if they disagree. Trainer is random in a new folder and in a copy.
// ReadIdentity writes nothing; Keep does.
func ReadIdentity(dir string, resume bool) (id Identity, err error) {
	if id.content, err = readIdentity(dir); err != nil {
		return id, err
	}
	if json.Unmarshal([]byte(id.content), &id) != nil {
		id = Identity{content: id.content}
	}
	switch {
	case !resume:
		id.Run = ""
	case id.Run == "":
		if id.Run, err = checkpointedRun(dir); err != nil {
			return id, err
		}
	}
	if id.Run == "" {
		id.Run = rand.Text()[:12]
	}
	if id.Trainer == "" || id.Folder != realPath(dir) {
		id.Trainer = rand.Text()
	}
	return id, nil
}

// checkpointedRun returns the name of the run that wrote the checkpoints of dir, or "" if none names a run. It
// also reads checkpoints that are damaged or set aside. It fails if they name several runs, because any of
// these may be the folder's.
func checkpointedRun(dir string) (run string, err error) {
	root := CheckpointRoot(dir)
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read identity: %w", err)
	}
	byRun := map[string][]string{}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if state, err := ReadState(filepath.Join(root, e.Name())); err == nil && state.Run != "" {
			byRun[state.Run] = append(byRun[state.Run], e.Name())
		}
	}
	runs := slices.Sorted(maps.Keys(byRun))
	if len(runs) == 0 {
		return "", nil
	}
	if len(runs) > 1 {
		var lists []string
		for _, name := range runs {
			lists = append(lists, fmt.Sprintf("%s of run %s", newest(byRun[name]), plain.Text(name)))
		}
		return "", fmt.Errorf("resume: %s is missing or damaged, and the checkpoints in %s are of several runs: %s. "+
			"Keep only those of the run that you want to continue", filepath.Join(dir, identityFile), root,
			strings.Join(lists, "; "))
	}
	return runs[0], nil
}

// newest lists the last three of ascending names, in descending order, and the number of others.
func newest(names []string) string {
	const shown = 3
	others := len(names) - shown
	names = slices.Clone(names[max(others, 0):])
	slices.Reverse(names)
	if others > 0 {
		names = append(names, fmt.Sprintf("%d more", others))
	}
	return strings.Join(names, ", ")
}

// Keep writes the identity durably to dir, which must exist and be locked. It fails if the file has changed
// since ReadIdentity.
func (id *Identity) Keep(dir string) error {
	current, err := readIdentity(dir)
	if err != nil {
		return err
	}
	if current != id.content {
		return fmt.Errorf("run.dir is %q, where another process has started a run in the meantime; repeat the command",
			dir)
	}
	id.Folder = realPath(dir)
	text, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("keep identity: %w", err)
	}
	id.content = string(text) + "\n"
	if id.content == current {
		return nil
	}
	if err := checkpoint.WriteSecret(filepath.Join(dir, identityFile), []byte(id.content)); err != nil {
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

// realPath returns the absolute path of a folder with symbolic links resolved, if the folder exists.
func realPath(dir string) string {
	if path, err := filepath.Abs(dir); err == nil {
		dir = path
	}
	if path, err := filepath.EvalSymlinks(dir); err == nil {
		dir = path
	}
	return dir
}
