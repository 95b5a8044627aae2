package torch

import (
	"bytes"
	"cmp"
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

	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/reward/program"
)

// OutputFile is the file in Config.Dir that holds the output of the ranks that the session
// starts.
const OutputFile = "ranks.log"

const (
	// Environment variables with the address to connect to, the token, and the file through which
	// ranks on one machine find each other.
	addressKey = "EASYRL_ADDRESS"
	tokenKey   = "EASYRL_TOKEN"
	meetingKey = "EASYRL_MEETING"

	workerFolder = "worker/easyrl_torch"
	maxTail      = 16 << 10 // bytes of output that are searched for an error
	maxLine      = 300      // bytes of a line in an error
)

// worker holds the Python package that ranks run.
//
//go:embed worker/easyrl_torch/*.py
var worker embed.FS

// unpack writes the Python package that ranks run into a new folder, in which no other user can
// write, and returns the folder that contains it.
func unpack() (root string, err error) {
	if root, err = os.MkdirTemp("", "easyrl-ranks-"); err != nil {
		return "", fmt.Errorf("unpack worker: %w", err)
	}
	to := filepath.Join(root, filepath.Base(workerFolder))
	if err = os.Mkdir(to, 0o755); err == nil {
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
	if err == nil {
		root, err = filepath.Abs(root)
	}
	if err != nil {
		return "", fmt.Errorf("unpack worker: %w", errors.Join(err, os.RemoveAll(root)))
	}
	return root, nil
}

// launch is a torchrun process on this machine. The methods of a nil launch do nothing.
type launch struct {
	token   string
	worker  string // folder that contains the Python package
	program *program.Background
	output  string // path of the file with its output
	from    int64  // offset of its output in the file
}

// startLaunch starts torchrun with all ranks, which connect to address.
func startLaunch(c *Config, address string) (l *launch, err error) {
	l = &launch{token: rand.Text(), output: filepath.Join(c.Dir, OutputFile)}
	if l.worker, err = unpack(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l, err = nil, errors.Join(fmt.Errorf("start ranks: %w", err), os.RemoveAll(l.worker))
		}
	}()
	output, err := openOutput(c.Dir)
	if err != nil {
		return l, err
	}
	defer output.Close() //nolint:errcheck // the ranks write to it
	if l.from, err = output.Seek(0, io.SeekEnd); err != nil {
		return l, err
	}
	l.program, err = program.Launch(l.torchrun(c), l.environment(c, address), output)
	return l, err
}

// openOutput opens the file of the ranks' output. It follows no link out of dir.
func openOutput(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // only opens the file
	return root.OpenFile(OutputFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
}

// torchrun returns the command that starts the ranks. Its processes meet through a temporary
// file: torchrun unpickles what it finds at the meeting point, and "--standalone" makes that a
// port that every network can reach. Python finds the package next to the program it runs, so
// that PYTHONPATH remains the user's.
func (l *launch) torchrun(c *Config) []string {
	const meeting = "store_type=file,keep_alive_interval=600" // each sign of life makes the file longer
	return []string{
		c.Python, "-m", "torch.distributed.run", "--rdzv-backend", "c10d", "--rdzv-conf", meeting,
		"--local-addr", "localhost", "--nproc-per-node", strconv.Itoa(c.world()),
		filepath.Join(l.worker, filepath.Base(workerFolder), "__main__.py"),
	}
}

// environment returns the variables of the ranks. They meet through a file in the folder of the
// package, where no other user can write; torchrun's own store for them would be a port that every
// network can reach.
func (l *launch) environment(c *Config, address string) []string {
	threads := cmp.Or(c.Threads, max(1, runtime.NumCPU()/c.world()))
	env := []string{addressKey + "=" + address, tokenKey + "=" + l.token,
		meetingKey + "=" + filepath.Join(l.worker, "meeting"),
		"TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1", "OMP_NUM_THREADS=" + strconv.Itoa(threads), "PYTHONUNBUFFERED=1",
		"PYTHONSAFEPATH=1"} // the working directory has no modules
	if runtime.GOOS == "linux" {
		env = append(env, "GLOO_SOCKET_IFNAME=lo") // instead of the interface with the host's address
	}
	return env
}

// done is closed when torchrun has ended.
func (l *launch) done() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.program.Done()
}

// kill ends torchrun and all ranks, and removes the unpacked package.
func (l *launch) kill() {
	if l != nil {
		l.program.Kill()
		_ = os.RemoveAll(l.worker) // a temporary folder
	}
}

// ended reports whether torchrun has ended, and waits up to 5 s for that after an error that a
// rank's end has caused.
func (l *launch) ended(err error) bool {
	const moment = 5 * time.Second
	wait := time.NewTimer(0)
	if errors.Is(err, errClosed) || errors.Is(err, errFailed) {
		wait.Reset(moment)
	}
	defer wait.Stop()
	select {
	case <-l.program.Done():
		return true
	case <-wait.C:
	}
	select {
	case <-l.program.Done():
		return true
	default:
		return false
	}
}

// tail returns the end of torchrun's output.
func (l *launch) tail() []byte {
	f, err := filetype.Open(l.output)
	if err != nil {
		return nil
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	from := max(l.from, info.Size()-maxTail)
	text := make([]byte, max(0, info.Size()-from))
	n, err := f.ReadAt(text, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	return text[:n]
}

// killed returns the number of the rank that a signal killed first, and the signal, as
// torchrun's output reports them. The signal is empty if there is none.
func killed(output []byte) (number int, signal string) {
	rank := regexp.MustCompile(`^\s*rank\s*: (\d+) `)
	cause := regexp.MustCompile(`^\s*traceback\s*: (Signal \d+.*)`)
	current, root := -1, false
	for line := range bytes.Lines(output) {
		root = root || bytes.HasPrefix(line, []byte("Root Cause"))
		if found := rank.FindSubmatch(line); found != nil {
			current, _ = strconv.Atoi(string(found[1])) // its digits
		}
		if found := cause.FindSubmatch(line); found != nil && (root || signal == "") {
			number, signal = current, oneLine(string(found[1]))
		}
	}
	return number, signal
}

// cause returns the last line of an output that begins with a Python error, or else the last
// line.
func cause(output []byte) string {
	raised := regexp.MustCompile(`^(\[rank\d+\]: )?[\w.]*(Error|Exception|Interrupt|Exit)\b`)
	lines := bytes.Split(bytes.TrimSpace(output), []byte("\n"))
	last := lines[len(lines)-1]
	for _, line := range lines {
		if raised.Match(line) && !bytes.Contains(line, []byte("ChildFailedError")) {
			last = line
		}
	}
	return oneLine(string(last))
}

// oneLine joins the lines of a text into one and cuts it to maxLine bytes.
func oneLine(text string) string {
	text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "?")
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + "…"
	}
	return text
}
