package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/easyrl/easyrl/inference/fleet"
)

// Faults of every packet, in either direction: its delay, and its chance of being lost.
const (
	wireDelay = 20 * time.Millisecond
	wireLoss  = 0.01
)

// wire is a network between this machine and a network namespace. It delays packets and
// loses some, like tc's netem, which not every kernel has.
type wire struct {
	namespace     string
	host          string // address of the namespace
	carried, lost atomic.Int64
	tasks         sync.WaitGroup
}

// openTunnel creates a network interface whose packets are read from and written to the
// returned file. Closing the file removes the interface.
func openTunnel(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// addresses returns two addresses of the block for benchmarking networks (RFC 2544).
// Different networks get different ones, so that concurrent tests do not collide.
func addresses(network int) (local, host string) {
	at := uint32(198<<24|18<<16) | uint32(2*network)&0x1fffe
	of := func(a uint32) string { return fmt.Sprintf("%d.%d.%d.%d", a>>24, a>>16&255, a>>8&255, a&255) }
	return of(at), of(at | 1)
}

// newWire creates the n-th network of the test, or skips the test if it lacks permission.
// The test's cleanup removes the network.
func newWire(t *testing.T, n int) *wire {
	t.Helper()
	local, host := addresses(4*os.Getpid() + n)
	w := &wire{namespace: fmt.Sprintf("easyrl-%d-%d", os.Getpid(), n), host: host}
	if out, err := exec.Command("ip", "netns", "add", w.namespace).CombinedOutput(); err != nil {
		t.Skipf("needs ip netns add, which only root may: %v: %s", err, out)
	}
	t.Cleanup(func() { w.ip(t, "netns del "+w.namespace) })
	here, there := fmt.Sprintf("ez%dh%d", os.Getpid(), n), fmt.Sprintf("ez%dn%d", os.Getpid(), n)
	near, err := openTunnel(here)
	if err != nil {
		t.Skipf("needs /dev/net/tun: %v", err)
	}
	t.Cleanup(func() {
		_ = near.Close()
		w.tasks.Wait()
	})
	far, err := openTunnel(there)
	require.NoError(t, err)
	t.Cleanup(func() { _ = far.Close() })
	w.ip(t, fmt.Sprintf("addr add %s peer %s dev %s", local, w.host, here))
	w.ip(t, fmt.Sprintf("link set %s up", here))
	w.ip(t, fmt.Sprintf("link set %s netns %s", there, w.namespace))
	w.ip(t, fmt.Sprintf("-n %s addr add %s peer %s dev %s", w.namespace, w.host, local, there))
	w.ip(t, fmt.Sprintf("-n %s link set %s up", w.namespace, there))
	w.ip(t, fmt.Sprintf("-n %s link set lo up", w.namespace))
	w.carry(near, far, rand.New(rand.NewPCG(uint64(n), 0)))
	w.carry(far, near, rand.New(rand.NewPCG(uint64(n), 1)))
	return w
}

func (w *wire) ip(t *testing.T, args string) {
	t.Helper()
	out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
	require.NoError(t, err, "ip %s: %s", args, out)
}

// carry moves packets from one end to the other until from is closed.
func (w *wire) carry(from, to *os.File, rng *rand.Rand) {
	type packet struct {
		due  time.Time
		data []byte
	}
	under := make(chan packet, 10_000) // on their way
	w.tasks.Go(func() {
		defer close(under)
		for {
			data := make([]byte, 2048)
			n, err := from.Read(data)
			if err != nil {
				return
			}
			w.carried.Add(1)
			if rng.Float64() < wireLoss {
				w.lost.Add(1)
				continue
			}
			under <- packet{time.Now().Add(wireDelay), data[:n]}
		}
	})
	w.tasks.Go(func() {
		for p := range under {
			<-time.After(time.Until(p.due))
			_, _ = to.Write(p.data) // lost if the interface is gone
		}
	})
}

// inside makes a command run in the namespace.
func (w *wire) inside(cmd *exec.Cmd) {
	ip, _ := exec.LookPath("ip") // newWire has already run it
	cmd.Args = append([]string{"ip", "netns", "exec", w.namespace, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = ip
}

// Instances on other networks, over slow and lossy links, do not change the run.
func TestNetworks(t *testing.T) {
	t.Parallel()
	const steps = 4
	dir := tinyRun(t)
	want := trainTiny(t, dir, "embedded", fleetSettings(steps)...)
	model := initTiny(t, dir, "served", 9)
	token := write(t, dir, "token", "secret\n")
	var wires []*wire
	var urls []string
	for n := range 3 {
		w := newWire(t, n)
		s := startServer(t, w.inside, model, w.host+":8000", "-token-file", token)
		require.Equal(t, "http://"+w.host+":8000", s.root)
		wires, urls = append(wires, w), append(urls, fmt.Sprintf("%q", s.root))
	}
	tr := startTraining(t, dir, "networks", fleet.DefaultConfig(), append(fleetSettings(steps), "inference.kind=easyrl",
		"inference.token_file="+filepath.Join(dir, "token"), "inference.endpoints=["+strings.Join(urls, ",")+"]")...)
	tr.end(t)
	requireSameRun(t, want, tr.out, steps)
	for step := 1; step <= steps; step++ {
		_, by := trainedOn(t, tr.out, step)
		require.Len(t, by, len(wires), "step %d: every instance samples", step)
	}
	lost := int64(0)
	for _, w := range wires {
		t.Logf("%s: %d packets, %d lost", w.host, w.carried.Load(), w.lost.Load())
		lost += w.lost.Load()
	}
	require.Positive(t, lost)
}
