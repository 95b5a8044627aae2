package program

import (
	"fmt"
	"sync"
	"time"

	"github.com/easyrl/easyrl/internal/bytesize"
)

// lookEvery is the interval between checks. The guard checks less often if checking
// would take more than a twentieth of a core.
const lookEvery = 100 * time.Millisecond

// Guard limits the memory of programs, each with its children: it kills those that
// exceed the limit. It also marks programs as the first victims of the kernel's
// out-of-memory killer, for memory that runs out between checks. On systems that do not
// report a program's memory (memoryOf), there is no limit.
type Guard struct {
	limit int64 // in bytes; 0 for none
	stop  chan struct{}
	once  sync.Once
	done  sync.WaitGroup

	mu      sync.Mutex
	started bool
	groups  map[int]*Process // by process group
}

// NewGuard returns a guard with a limit in bytes; 0 means no limit. The caller closes
// it after all programs have ended.
func NewGuard(limit int64) *Guard {
	return &Guard{limit: limit, stop: make(chan struct{}), groups: map[int]*Process{}}
}

func (g *Guard) err() error {
	return fmt.Errorf("program used more than %s of memory", bytesize.Text(g.limit))
}

// add starts watching a running process.
func (g *Guard) add(p *Process) {
	sacrifice(p.cmd.Process.Pid)
	if g.limit == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.groups[p.cmd.Process.Pid] = p
	if !g.started {
		g.started = true
		g.done.Go(g.watch)
	}
}

// remove stops watching a process. Call it before the process is reaped: its id may
// then be reused.
func (g *Guard) remove(p *Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.groups, p.cmd.Process.Pid)
}

func (g *Guard) watch() {
	wait := lookEvery
	for {
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-g.stop:
			t.Stop()
			return
		}
		begin := time.Now()
		g.look()
		wait = max(lookEvery, 20*time.Since(begin))
	}
}

// look kills the process groups above the limit.
func (g *Guard) look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.groups) == 0 {
		return
	}
	of := make(map[int]int64, len(g.groups))
	for group := range g.groups {
		of[group] = 0
	}
	memoryOf(of, g.limit)
	for group, bytes := range of {
		if p := g.groups[group]; bytes > g.limit {
			p.over.Store(true)
			killGroup(p.cmd)
		}
	}
}

// Close stops the watch and waits for its goroutine.
func (g *Guard) Close() {
	g.once.Do(func() { close(g.stop) })
	g.done.Wait()
}
