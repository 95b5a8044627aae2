package program

import (
	"crypto/rand"
	"encoding/gob"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	supervisorName = "reward-supervisor" // its argv[0]
	markKey        = "EASYRL_REWARD_PROGRAM"
	lifeline       = 3                 // the supervisor's file that ends with the trainer
	librariesKey   = "LD_LIBRARY_PATH" // where this executable's libraries may be

	exitUnsupervised = 125 // the supervisor failed
	exitUnstarted    = 126 // the program did not start, as in a shell
	exitSignaled     = 128 // plus the signal, as in a shell

	maxTries = 1000 // attempts of killMarked: a process that waits for a device may not die
)

// init turns a process that tether starts into a supervisor. It runs before main, so that
// every program that imports this package can supervise, test binaries included.
func init() {
	if os.Args[0] == supervisorName && len(os.Args) == 1 {
		syscall.Exit(supervise(os.NewFile(lifeline, "lifeline")))
	}
}

// leash ties a program to this process. It is a pipe from this process to the program's supervisor. When
// this process dies, the kernel closes this end of the pipe, and the supervisor then kills the program.
type leash struct {
	near    *os.File // this process's end, for writing
	far     *os.File // the supervisor's end, for reading; closed here once the supervisor has started
	program supervised
	mark    string // entry in the environment of the program and its descendants
}

// supervised is what a supervisor runs. It arrives through the lifeline, not in argv, so that
// pkill -f on the program does not match the supervisor.
type supervised struct {
	Path string
	Argv []string
	Env  []string
}

// tether makes cmd run under a supervisor: this executable in a separate process, which
// adopts the program's orphans, and kills the program and all its descendants when the
// leash is cut or the program exits. The program gets the environment of cmd, the supervisor only
// what this executable may need to start.
func tether(cmd *exec.Cmd) (*leash, error) {
	far, near, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	l := &leash{near: near, far: far, mark: markKey + "=" + rand.Text()}
	cmd.Env = append(cmd.Environ(), l.mark)
	l.program = supervised{cmd.Path, cmd.Args, cmd.Environ()}
	cmd.Path, cmd.Args = "/proc/self/exe", []string{supervisorName}
	cmd.Env = []string{l.mark}
	if libraries, ok := os.LookupEnv(librariesKey); ok {
		cmd.Env = append(cmd.Env, librariesKey+"="+libraries)
	}
	cmd.ExtraFiles = []*os.File{far}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals to our group or terminal spare it
	return l, nil
}

// started sends the supervisor the program to run. Call it after the attempt to start, even if that failed.
func (l *leash) started() {
	_ = l.far.Close()
	_ = gob.NewEncoder(l.near).Encode(l.program) // fails if the supervisor is dead, which its output shows
}

// cut makes the supervisor kill the program and its descendants. It may be called again.
func (l *leash) cut() { _ = l.near.Close() }

// ended kills what a killed supervisor left behind. state is nil if it did not start.
func (l *leash) ended(state *os.ProcessState) {
	l.cut()
	if state != nil && !state.Exited() {
		killMarked(l.mark)
	}
}

// supervise runs a program with the standard files of this process. It returns the
// program's exit status when the program and all its descendants are dead.
func supervise(leash *os.File) int {
	unix.CloseOnExec(lifeline)
	var p supervised
	if gob.NewDecoder(leash).Decode(&p) != nil {
		return exitUnsupervised // the trainer is dead
	}
	_ = os.WriteFile("/proc/self/comm", []byte(supervisorName), 0) // only for ps
	// Discard signals. signal.Ignore would do that too, but the program would inherit it.
	signal.Notify(make(chan os.Signal, 1))
	pid, err := p.start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "start program:", err)
		return exitUnstarted
	}
	var once sync.Once
	end := func() { once.Do(func() { go killDescendants() }) }
	go func() {
		_, _ = io.Copy(io.Discard, leash)
		end()
	}()
	code := exitUnsupervised
	for {
		var status unix.WaitStatus
		switch child, err := unix.Wait4(-1, &status, 0, nil); {
		case err == unix.EINTR:
		case err != nil:
			return code // no children: orphans become children, so there are no descendants
		case child == pid && status.Signaled():
			code = exitSignaled + int(status.Signal())
			end()
		case child == pid:
			code = status.ExitStatus()
			end()
		}
	}
}

// start starts the program, which dies with this process. Only the program keeps
// the standard files.
func (p supervised) start() (pid int, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, os.NewSyscallError("prctl", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close() //nolint:errcheck // nothing was written
	restore := sacrifice()
	// Pdeathsig refers to the thread that forks, here the main thread, which lives as long as the process.
	pid, err = syscall.ForkExec(p.Path, p.Argv, &syscall.ProcAttr{
		Env: p.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
	restore()
	if err != nil {
		return 0, &os.PathError{Op: "exec", Path: p.Path, Err: err}
	}
	for fd := range 3 {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return 0, os.NewSyscallError("dup3", err)
		}
	}
	return pid, nil
}

// killDescendants kills all descendants of this process until this process exits. Descendants may start others
// meanwhile. A list of all processes hardly ever shows a process that ends as soon as its child runs. So after each
// list it looks many times at only the newest process IDs, which takes microseconds.
func killDescendants() {
	const newest, looks = 32, 100 // process IDs in a look, looks after a list
	for pause := time.Duration(0); ; pause = min(pause+100*time.Microsecond, lookEvery) {
		found := map[int]bool{os.Getpid(): true}
		kill := func(pid int) {
			if p, ok := readProcess(pid); ok && found[p.parent] {
				found[pid] = true
				_ = unix.Kill(pid, unix.SIGKILL) // fails if it is dead
				if p.group > 1 {                 // kill(-1) reaches every process
					_ = unix.Kill(-p.group, unix.SIGKILL) // all descendants: the program has its own session
				}
			}
		}
		eachPid(kill)
		for range looks {
			for last, pid := lastPid(), 0; pid < newest; pid++ {
				kill(last - pid)
			}
		}
		time.Sleep(pause)
	}
}
