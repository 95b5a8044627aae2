//go:build unix

package program

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain also runs the test binary as the program or as the trainer.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "lead" {
		lead(os.Args[2:])
	}
	if len(os.Args) > 2 && os.Args[1] == "answer" {
		answer(os.Args[2], os.Args[3:])
		return
	}
	os.Exit(m.Run())
}

// lead trains: it asks a program once, and then waits for the signal that ends it.
func lead(argv []string) {
	p, err := Start(argv, os.Environ(), NewGuard(0))
	if err == nil {
		_, err = p.Ask(context.Background(), []byte("line\n"), 1, time.Minute, func(int, []byte) error { return nil })
	}
	fmt.Println("asked:", err)
	select {}
}

// answer repeats each line of standard input, and treats standard error as mode says. The
// line "exit" ends it without an answer.
func answer(mode string, args []string) {
	const line = "It is the last line.\n"
	say := func(text string) bool { _, err := os.Stderr.WriteString(text); return err == nil }
	flood := func(text string) {
		for say(text) {
		}
	}
	switch mode {
	case "lines":
		for range 2 {
			go flood(strings.Repeat(line, 1<<15))
		}
	case "letters":
		go flood("z")
	case "one line":
		go flood(strings.Repeat("z", 1<<20))
	case "closed":
		_ = os.Stderr.Close()
	case "held", "flooded":
		if err := child(args[0], args[1], mode == "flooded"); err != nil {
			panic(err)
		}
	case "hold":
		hold(args[0], args[1] == "true", func() { flood(line) })
		return
	}
	in := bufio.NewReader(os.Stdin)
	for {
		text, err := in.ReadString('\n')
		if mode == "first" { // what no pipe holds, in the way of the answer
			say(strings.Repeat(line, 1<<18))
		}
		if err != nil || text == "exit\n" {
			say(line)
			return
		}
		fmt.Print(text)
	}
}

func started(t *testing.T, args ...string) *Process {
	t.Helper()
	p, err := Start(append([]string{os.Args[0], "answer"}, args...), os.Environ(), NewGuard(0))
	require.NoError(t, err)
	return p
}

// asked sends lines, requires that each one is repeated, and returns the error of the last.
func asked(t *testing.T, p *Process, lines ...string) error {
	t.Helper()
	replies := []string{}
	n, err := p.Ask(t.Context(), []byte(strings.Join(lines, "\n")+"\n"), len(lines), time.Minute,
		func(_ int, answer []byte) error {
			replies = append(replies, strings.TrimSpace(string(answer)))
			return nil
		})
	require.Len(t, replies, n)
	require.Equal(t, lines[:n], replies)
	return err
}

// No use of standard error delays answers until their deadline, or the end of the process.
func TestStandardErrorDelaysNothing(t *testing.T) {
	t.Parallel()
	const last = "; its standard error ends with: It is the last line."
	for mode, want := range map[string]string{
		"quiet": last, "lines": "; its standard error ends with: ", "letters": "; its standard error ends with: ",
		"one line": "; its standard error ends with: ", "closed": "",
		"first": last,
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			for _, end := range []string{"kill", "exit"} {
				p := started(t, mode)
				for i := range 20 {
					require.NoError(t, asked(t, p, fmt.Sprint(i), "again"))
				}
				if end == "kill" {
					p.Kill()
				} else {
					err := asked(t, p, "exit")
					require.ErrorIs(t, err, ErrEnded)
					require.ErrorContains(t, err, ErrEnded.Error()+want)
					require.Less(t, len(err.Error()), 3*maxQuote)
				}
				require.LessOrEqual(t, len(p.stderr.end), maxTail)
			}
		})
	}
}

// child starts a child that shares standard error, in a session of its own if session is
// "own".
func child(path, session string, floods bool) error {
	c := exec.Command(os.Args[0], "answer", "hold", path, fmt.Sprint(floods))
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: session == "own"}
	return c.Start()
}

// hold writes its process id to the pipe at path and keeps it open.
func hold(path string, floods bool, flood func()) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	if floods {
		go flood()
	}
	_, _ = fmt.Fprintf(f, "%08d", os.Getpid())
	select {}
}

// A child that keeps standard error open, or floods it, delays neither Ask nor Kill. It
// ends with its parent, except for one in a session of its own without a supervisor.
func TestChildrenKeepStandardErrorOpen(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"held", "flooded"} {
		for _, session := range []string{"own", "shared"} {
			for _, end := range []string{"kill", "exit"} {
				t.Run(strings.Join([]string{mode, session, end}, " "), func(t *testing.T) {
					t.Parallel()
					path := filepath.Join(t.TempDir(), "pipe")
					require.NoError(t, syscall.Mkfifo(path, 0o600))
					p := started(t, mode, path, session)
					held, err := os.Open(path)
					require.NoError(t, err)
					defer func() { require.NoError(t, held.Close()) }()
					text := make([]byte, 8)
					_, err = io.ReadFull(held, text)
					require.NoError(t, err)
					var pid int
					_, err = fmt.Sscanf(string(text), "%d", &pid)
					require.NoError(t, err)
					defer func() {
						if t.Failed() {
							_ = syscall.Kill(pid, syscall.SIGKILL)
						}
					}()

					require.NoError(t, asked(t, p, "1", "2"))
					if end == "kill" {
						p.Kill()
					} else {
						require.ErrorIs(t, asked(t, p, "exit"), ErrEnded)
					}
					if session == "own" && runtime.GOOS != "linux" {
						if mode == "held" {
							require.NoError(t, syscall.Kill(pid, 0), "the child still keeps standard error open")
						}
						_ = syscall.Kill(pid, syscall.SIGKILL) // a flooding one may have ended: nothing reads any more
					}
					rest, err := io.ReadAll(held) // until the child is dead
					require.NoError(t, err)
					require.Empty(t, rest)
				})
			}
		}
	}
}
