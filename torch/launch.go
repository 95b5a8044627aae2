package torch

import (
	"bytes"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/easyrl/easyrl/reward/program"
)

// OutputFile is the file in Config.Dir that holds the output of ranks which the session
// starts.
const OutputFile = "ranks.log"

const (
	// Variables that tell a rank where to connect.
	addressKey = "EASYRL_ADDRESS"
	tokenKey   = "EASYRL_TOKEN"

	workerFolder = "worker/easyrl_torch"
	maxTail      = 16 << 10 // bytes of output that are searched for an error
	maxLine      = 300      // bytes of a line in an error
)

// worker is the Python package that ranks run.
//
//go:embed worker/easyrl_torch/*.py
var worker embed.FS

// Unpack writes the Python package that ranks run into a folder and returns the folder for
// PYTHONPATH.
func Unpack(dir string) (string, error) {
	root := filepath.Join(dir, "worker")
	to := filepath.Join(root, filepath.Base(workerFolder))
	err := os.MkdirAll(to, 0o755)
	if err == nil {
		err = fs.WalkDir(worker, workerFolder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := worker.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(to, entry.Name()), content, 0o644)
		})
	}
	if err != nil {
		return "", fmt.Errorf("unpack worker: %w", err)
	}
	return filepath.Abs(root)
}

// launch is a torchrun of this machine. The methods of a nil launch do nothing.
type launch struct {
	token   string
	program *program.Background
	output  string // path of its output
	from    int64  // where its output begins
}

// startLaunch starts torchrun with all ranks, which connect to address.
func startLaunch(c *Config, address string) (*launch, error) {
	l := &launch{token: rand.Text(), output: filepath.Join(c.Dir, OutputFile)}
	path, err := Unpack(c.Dir)
	if err != nil {
		return nil, err
	}
	output, err := os.OpenFile(l.output, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start ranks: %w", err)
	}
	defer output.Close() //nolint:errcheck // the ranks write to it
	if l.from, err = output.Seek(0, io.SeekEnd); err != nil {
		return nil, fmt.Errorf("start ranks: %w", err)
	}
	env := []string{addressKey + "=" + address, tokenKey + "=" + l.token, "PYTHONPATH=" + joinPath(path, inherited("PYTHONPATH")), "PYTHONUNBUFFERED=1"}
	if c.Threads > 0 || inherited("OMP_NUM_THREADS") == "" {
		threads := c.Threads
		if threads == 0 {
			threads = max(1, runtime.NumCPU()/c.world())
		}
		env = append(env, "OMP_NUM_THREADS="+strconv.Itoa(threads))
	}
	argv := []string{c.Python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", strconv.Itoa(c.world()), "-m", filepath.Base(workerFolder)}
	if l.program, err = program.Launch(argv, env, output); err != nil {
		return nil, fmt.Errorf("start ranks: %w", err)
	}
	return l, nil
}

// joinPath joins lists of folders.
func joinPath(a, b string) string {
	if b == "" {
		return a
	}
	return a + string(filepath.ListSeparator) + b
}

// inherited returns a variable of this process's environment.
func inherited(key string) string {
	for _, entry := range os.Environ() {
		if name, value, _ := strings.Cut(entry, "="); name == key {
			return value
		}
	}
	return ""
}

// done is closed when torchrun has ended.
func (l *launch) done() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.program.Done()
}

func (l *launch) kill() {
	if l != nil {
		l.program.Kill()
	}
}

// explain adds to an error what torchrun's output says if it has ended, and gives it a
// moment to end if a rank has done so without a word.
func (l *launch) explain(err error) error {
	if l == nil {
		return err
	}
	const moment = 5 * time.Second
	wait := time.NewTimer(0)
	if errors.Is(err, errClosed) {
		wait.Reset(moment)
	}
	defer wait.Stop()
	select {
	case <-l.program.Done():
	case <-wait.C:
		select {
		case <-l.program.Done():
		default:
			return err
		}
	}
	if said := l.said(); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return fmt.Errorf("%w; see %s", err, l.output)
}

// said returns the line of the output's end that most likely names the cause.
func (l *launch) said() string {
	f, err := os.Open(l.output)
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	from := max(l.from, info.Size()-maxTail)
	text := make([]byte, max(0, info.Size()-from))
	n, err := f.ReadAt(text, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	return cause(text[:n])
}

// cause returns the signal that ended the first rank, which torchrun names, otherwise the
// last line that a Python error begins, and otherwise the last line.
func cause(output []byte) string {
	raised := regexp.MustCompile(`^(\[rank\d+\]: )?[\w.]*(Error|Exception|Interrupt|Exit)\b`)
	signal := regexp.MustCompile(`^\s*traceback\s*: (Signal \d+.*)`)
	lines := bytes.Split(bytes.TrimSpace(output), []byte("\n"))
	last, root := lines[len(lines)-1], false
	for _, line := range lines {
		root = root || bytes.HasPrefix(line, []byte("Root Cause"))
		if found := signal.FindSubmatch(line); root && found != nil {
			return oneLine(string(found[1]))
		}
		if raised.Match(line) && !bytes.Contains(line, []byte("ChildFailedError")) {
			last = line
		}
	}
	return oneLine(string(last))
}

// oneLine returns the beginning of a text on one line.
func oneLine(text string) string {
	text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "?")
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + "…"
	}
	return text
}
