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
	// Environment variables of ranks.
	addressKey = "EASYRL_ADDRESS" // address to connect to
	tokenKey   = "EASYRL_TOKEN"
	meetingKey = "EASYRL_MEETING" // file through which ranks on one machine find each other

	workerFolder = "worker/easyrl_torch"
	maxTail      = 16 << 10 // bytes at the end of the output that are searched for an error
	maxLine      = 300      // bytes of a line of output in an error
)

// worker holds the Python package that ranks run.
//
//go:embed worker/easyrl_torch/*.py
var worker embed.FS

// unpack writes the Python package that ranks run into a new temporary folder, in which no other user can
// write, and returns that folder.
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
	from    int64  // offset in the file at which its output begins
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

// torchrun returns the command that starts the ranks. Its processes meet through a temporary file and not
// through the port of "--standalone", because torchrun unpickles the data that it gets there, and every
// network can reach that port. Python finds the package next to the program that it runs, so PYTHONPATH
// remains the user's.
func (l *launch) torchrun(c *Config) []string {
	const meeting = "store_type=file,keep_alive_interval=600" // each sign of life makes the file longer
	return []string{
		c.Python, "-m", "torch.distributed.run", "--rdzv-backend", "c10d", "--rdzv-conf", meeting,
		"--local-addr", "localhost", "--nproc-per-node", strconv.Itoa(c.world()),
		filepath.Join(l.worker, filepath.Base(workerFolder), "__main__.py"),
	}
}

// environment returns the environment variables of the ranks. They meet through a file in the folder of
// the package, in which no other user can write. The store that torchrun offers them would be a port that
// every network can reach.
func (l *launch) environment(c *Config, address string) []string {
	threads := cmp.Or(c.Threads, max(1, runtime.NumCPU()/c.world()))
	env := []string{addressKey + "=" + address, tokenKey + "=" + l.token,
		meetingKey + "=" + filepath.Join(l.worker, "meeting"),
		"TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1", "OMP_NUM_THREADS=" + strconv.Itoa(threads), "PYTHONUNBUFFERED=1",
		"PYTHONSAFEPATH=1"} // import no modules from the working directory
	if runtime.GOOS == "linux" {
		env = append(env, "GLOO_SOCKET_IFNAME=lo") // not the interface with the host's address
	}
	return env
}

// done returns a channel that is closed when torchrun has ended. A nil launch returns nil, which is never
// ready.
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

// ended reports whether torchrun has ended. If err means that a rank has ended, torchrun will end too, so
// ended waits for it up to 5 s.
func (l *launch) ended(err error) bool {
	const grace = 5 * time.Second
	timeout := time.NewTimer(0)
	if errors.Is(err, errClosed) || errors.Is(err, errFailed) {
		timeout.Reset(grace)
	}
	defer timeout.Stop()
	select {
	case <-l.program.Done():
		return true
	case <-timeout.C:
	}
	select {
	case <-l.program.Done():
		return true
	default:
		return false
	}
}

// tail returns the last maxTail bytes of torchrun's output, or nil if it cannot be read.
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

// killed returns the number of a rank that a signal killed, and the signal, from the report at the end of
// torchrun's output. It prefers the rank that the report names as the root cause. The signal is empty if
// the report has none.
func killed(output []byte) (number int, signal string) {
	rank := regexp.MustCompile(`^\s*rank\s*: (\d+) `)
	cause := regexp.MustCompile(`^\s*traceback\s*: (Signal \d+.*)`)
	current := -1
	inRootCause := false
	for line := range bytes.Lines(output) {
		inRootCause = inRootCause || bytes.HasPrefix(line, []byte("Root Cause"))
		if found := rank.FindSubmatch(line); found != nil {
			current, _ = strconv.Atoi(string(found[1])) // only digits
		}
		if found := cause.FindSubmatch(line); found != nil && (inRootCause || signal == "") {
			number = current
			signal = oneLine(string(found[1]))
		}
	}
	return number, signal
}

// cause returns the last line of output that begins with the name of a Python error, or the last line if
// there is none.
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

// oneLine joins the words of a text with single spaces and cuts the result to maxLine bytes.
func oneLine(text string) string {
	text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "?")
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + "…"
	}
	return text
}
