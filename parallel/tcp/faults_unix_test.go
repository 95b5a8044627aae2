//go:build unix

package tcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/porttest"
	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/parallel"
)

// rankProcess is the test's own process as another rank.
const rankProcess = "EASYRL_TEST_RANK"

// TestMain also lets the test binary act as a rank, in a process that TestDeath can kill.
func TestMain(m *testing.M) {
	if os.Getenv(rankProcess) != "" {
		if err := reduceForever(); err != nil {
			_, _ = os.Stdout.WriteString(err.Error() + "\n")
		}
		os.Exit(0)
	}
	soak.Parallel(16)
	os.Exit(m.Run())
}

func reduceForever() error {
	p, err := parallel.ThisProcess()
	if err != nil {
		return err
	}
	cfg := Config{Rank: p.Rank, Size: p.Size, Master: p.Master, Token: []byte(secret), Silence: 8 * time.Second}
	w, err := Open(context.Background(), cfg)
	if err != nil {
		return err
	}
	defer w.Close()
	g, err := parallel.Mesh{DP: w.Size(), TP: 1, PP: 1}.Join(w, parallel.Data, 0)
	for i := 0; err == nil; i++ {
		if err = g.AllReduceSum(context.Background(), make([]int64, 100_000)); i == 3 {
			_, _ = os.Stdout.WriteString("running\n")
		}
	}
	return err
}

// A rank that is killed or stopped is named by all others.
func TestDeath(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		signal os.Signal
		victim int
		want   string
	}{
		"killed":         {os.Kill, 2, "rank 2 (127.0.0.1:"},
		"stopped":        {syscall.SIGSTOP, 2, "no sign of life for 8s"},
		"killed master":  {os.Kill, 0, "rank 0 (127.0.0.1:"},
		"stopped master": {syscall.SIGSTOP, 0, "rank 0 (127.0.0.1:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, port, err := net.SplitHostPort(porttest.Address(t))
			require.NoError(t, err)
			self, err := os.Executable()
			require.NoError(t, err)
			var ranks []*exec.Cmd
			var outs []io.Reader
			for i := range 4 {
				cmd := exec.Command(self)
				cmd.Env = append(os.Environ(), rankProcess+"=1", "WORLD_SIZE=4", "RANK="+strconv.Itoa(i),
					"MASTER_ADDR="+host, "MASTER_PORT="+port)
				out, err := cmd.StdoutPipe()
				require.NoError(t, err)
				require.NoError(t, cmd.Start())
				t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
				ranks, outs = append(ranks, cmd), append(outs, out)
			}
			for _, out := range outs {
				line := make([]byte, len("running\n"))
				_, err := io.ReadFull(out, line)
				require.NoError(t, err)
				require.Equal(t, "running\n", string(line))
			}
			require.NoError(t, ranks[row.victim].Process.Signal(row.signal))
			for i, out := range outs {
				if i == row.victim {
					continue
				}
				text, err := io.ReadAll(out)
				require.NoError(t, err)
				require.Contains(t, string(text), row.want, "rank %d", i)
				require.Contains(t, string(text), "all-reduce over dp: rank "+strconv.Itoa(row.victim)+" (",
					"rank %d", i)
			}
		})
	}
}

// hostOf2 starts rank 0 of 2 and returns its address, its warnings, and a function that returns
// Open's result.
func hostOf2(t *testing.T) (addr string, said *notes, opened func() (*World, error)) {
	t.Helper()
	type result struct {
		w   *World
		err error
	}
	said = newNotes()
	cfg := Config{Rank: 0, Size: 2, Master: porttest.Address(t), Token: []byte(secret), Run: "run", Numerics: "a",
		Warn: said.warn}
	done := make(chan result, 1)
	go func() {
		w, err := Open(t.Context(), cfg)
		done <- result{w, err}
	}()
	return cfg.Master, said, func() (*World, error) {
		r := <-done
		return r.w, r.err
	}
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	for {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			t.Cleanup(func() { c.Close() })
			return c
		}
		require.NoError(t, t.Context().Err())
	}
}

// Rank 0 refuses a connection of another protocol and continues to serve.
func TestStrangers(t *testing.T) {
	t.Parallel()
	addr, said, opened := hostOf2(t)
	good := Config{Rank: 1, Size: 2, Master: addr, Token: []byte(secret), Run: "run", Numerics: "a",
		Join: time.Minute}
	for want, change := range map[string]func(*Config){
		`refused: "token differs, or the data was changed on the way"`: func(
			c *Config) {
			c.Token = []byte("another token of tests")
		},
		`refused: "run is \"old\", expected \"run\""`:                    func(c *Config) { c.Run = "old" },
		`refused: "rank 1 computes in \"b\", expected \"a\", as rank 0"`: func(c *Config) { c.Numerics = "b" },
		`refused: "world size is 3, expected 2"`:                         func(c *Config) { c.Size = 3 },
		`listen tcp 192.0.2.1:1: bind: cannot assign requ`:               func(c *Config) { c.Listen = "192.0.2.1:1" },
	} {
		bad := good
		change(&bad)
		_, err := Open(t.Context(), bad)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "join world at "+addr+" as rank 1 of ")
	}
	said.wait("token differs")

	other := dial(t, addr)
	_, err := io.WriteString(other, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	said.wait(`connection begins with "GET / HTTP/1.1\r\n", expected "easyrl parallel "`)
	old := dial(t, addr)
	_, err = old.Write(append(append([]byte(magic), 1), make([]byte, publicSize)...))
	require.NoError(t, err)
	said.wait(fmt.Sprintf("protocol version is 1, expected %d: all ranks need the same release of easyrl", version))
	answer := make([]byte, openingSize)
	_, err = io.ReadFull(old, answer)
	require.NoError(t, err)
	require.Equal(t, append([]byte(magic), version), answer[:len(magic)+1], "it can say so too")
	var slow []net.Conn
	for range maxHandshakes + 10 { // more than are served at once
		slow = append(slow, dial(t, addr))
	}
	for _, c := range slow[:12] {
		c.Close() // the others stay and say nothing
	}
	w, err := Open(t.Context(), good)
	require.NoError(t, err)
	defer w.Close()
	first, err := opened()
	require.NoError(t, err)
	defer first.Close()
	good.Silence = time.Millisecond // after which the first one would have been found dead
	_, err = Open(t.Context(), good)
	require.ErrorContains(t, err, "rank 1 has already joined, from 127.0.0.1:")
	require.NoError(t, exercise(t.Context(), w, first))
}

// exercise sends a message from a to b.
func exercise(ctx context.Context, a, b *World) error {
	errs := make(chan error, 1)
	go func() { errs <- a.Send(ctx, parallel.Envelope{Peer: b.Rank(), Channel: "x"}, []byte("hello")) }()
	got := make([]byte, 5)
	err := b.Recv(ctx, parallel.Envelope{Peer: a.Rank(), Channel: "x"}, got)
	if err = errors.Join(err, <-errs); err == nil && string(got) != "hello" {
		err = errors.New(string(got))
	}
	return err
}

// A server that does not know the token learns nothing that lets a rank in, and is refused.
func TestFalseMaster(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	seen := make(chan string, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			return
		}
		defer raw.Close()
		var all bytes.Buffer
		c := newConn(raw)
		c.in = bufio.NewReader(io.TeeReader(raw, &all))
		_, err = c.readHello(make([]byte, 32))
		if errors.As(err, new(refusal)) { // as it must, so it claims to know the token
			err = c.sendText(nil)
		}
		if err != nil {
			all.WriteString(err.Error())
		}
		seen <- all.String()
	}()
	_, err = Open(t.Context(), Config{Rank: 1, Size: 2, Master: l.Addr().String(), Token: []byte(secret)})
	require.ErrorContains(t, err, `refused: "token differs, or the data was changed on the way"`)
	require.NotContains(t, <-seen, secret)
}

// A rank that dies while others join may join again. One that never comes is named.
func TestJoinAgain(t *testing.T) {
	t.Parallel()
	said := newNotes()
	cfg := Config{Size: 3, Master: porttest.Address(t), Token: []byte(secret), Warn: said.warn}.withDefaults()
	w := newWorld(cfg)
	ctx, cancel := context.WithCancelCause(t.Context())
	require.NoError(t, w.host(ctx))
	has := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.links[1] != nil
	}
	cfg.Rank, cfg.Token = 1, []byte(secret)
	errs := make(chan error, 1)
	for range 3 {
		short, stop := context.WithCancel(t.Context())
		go func() {
			_, err := Open(short, cfg)
			errs <- err
		}()
		for !has() {
			runtime.Gosched()
		}
		stop()
		require.ErrorContains(t, <-errs, "context canceled")
		for has() {
			runtime.Gosched()
		}
	}
	said.wait("rank 1 (127.0.0.1:")
	go func() {
		_, err := Open(t.Context(), cfg)
		errs <- err
	}()
	for !has() {
		runtime.Gosched()
	}
	cancel(errors.New("enough"))
	const want = "enough; ranks [2] have not joined"
	require.ErrorContains(t, w.assemble(ctx), want)
	require.NoError(t, w.Close())
	require.ErrorContains(t, <-errs, want)
}

// A rank that has joined ends at once if rank 0 dies or gives up before the others have joined. Before
// that it says once what it waits for.
func TestHostEndsWhileRanksJoin(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *World){
		"dies":     func(w *World) { w.links[1].conn.Close() },
		"gives up": func(w *World) { w.links[1].out <- note{Kind: verdict, Reason: "no model"} },
		"leaves":   func(w *World) { close(w.links[1].bye) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said, heard := newNotes(), newNotes()
			cfg := Config{Rank: 1, Size: 3, Master: porttest.Address(t), Token: []byte(secret), Warn: said.warn,
				patience: time.Millisecond}
			errs := make(chan error, 1)
			go func() {
				_, err := Open(t.Context(), cfg)
				errs <- err
			}()
			said.wait("rank 1 of 3 still waits for rank 0 to listen at " + cfg.Master)
			own := cfg
			own.Rank, own.Warn = 0, heard.warn
			w := newWorld(own.withDefaults())
			require.NoError(t, w.host(t.Context()))
			err, ended := error(nil), (*link)(nil)
			for err == nil {
				w.mu.Lock()
				if l := w.links[1]; l != nil && l != ended {
					end(w)
					ended = l // the rank joins again if that was before it knew that it had joined
				}
				w.mu.Unlock()
				select {
				case err = <-errs:
				default:
					runtime.Gosched()
				}
			}
			require.ErrorContains(t, err, "join world at "+cfg.Master+" as rank 1 of 3: rank 0")
			require.NotContains(t, err.Error(), "not complete")
			w.mu.Lock()
			clear(w.links) // their connections have ended
			w.mu.Unlock()
			require.NoError(t, w.Close())
		})
	}
}

// Rank 0 says once which ranks are missing.
func TestHostStillWaits(t *testing.T) {
	t.Parallel()
	said := newNotes()
	cfg := Config{Size: 3, Master: porttest.Address(t), Token: []byte(secret), Warn: said.warn,
		patience: time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	go func() {
		_, err := Open(ctx, cfg)
		errs <- err
	}()
	said.wait("rank 0 of 3 still waits for ranks [1 2] to join")
	cancel()
	require.ErrorContains(t, <-errs, "context canceled; ranks [1 2] have not joined")
}

func TestConfig(t *testing.T) {
	t.Parallel()
	bad := Config{Rank: 3, Size: 2, Token: []byte("short"), Run: strings.Repeat("x", 129), Listen: "x", Join: -1}
	_, err := Open(t.Context(), bad)
	require.EqualError(t, err, `join world: rank is 3, expected 0 to 1
token has 5 bytes, expected at least 16
run has 129 bytes, expected at most 128
master address is "", expected host:port
listen address is "x", expected host:port
time to join is -1ns, to listen 0s and silence 0s, expected none below 0`)
}
