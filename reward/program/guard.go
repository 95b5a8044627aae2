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

// Guard limits the memory of programs, each with its descendants: it kills those that
// exceed the limit. On systems that do not report a program's memory (memoryOf), there is
// no limit. If memory runs out between checks, the kernel's out-of-memory killer chooses
// programs first (sacrifice).
type Guard struct {
	limit int64 // in bytes; 0 for none
	stop  chan struct{}
	once  sync.Once
	done  sync.WaitGroup

	mu      sync.Mutex       // guards the fields below
	started bool             // watch is running
	watched map[int]*Process // by process ID
}

// NewGuard returns a guard with a limit in bytes; 0 means no limit. The caller closes
// it after all programs have ended.
func NewGuard(limit int64) *Guard {
	return &Guard{limit: limit, stop: make(chan struct{}), watched: map[int]*Process{}}
}

// err returns the error of a program that exceeded the limit.
func (g *Guard) err() error {
	return fmt.Errorf("program used more than %s of memory", bytesize.Text(g.limit))
}

// add starts watching a running process.
func (g *Guard) add(p *Process) {
	if g.limit == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watched[p.cmd.Process.Pid] = p
	if !g.started {
		g.started = true
		g.done.Go(g.watch)
	}
}

// remove stops watching a process. Call it before the process is reaped: afterwards another process may get
// its ID.
func (g *Guard) remove(p *Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.watched, p.cmd.Process.Pid)
}

// watch checks the programs until Close.
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

// look kills the programs above the limit.
func (g *Guard) look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.watched) == 0 {
		return
	}
	memory := make(map[int]int64, len(g.watched))
	for pid := range g.watched {
		memory[pid] = 0
	}
	memoryOf(memory, g.limit)
	for pid, bytes := range memory {
		if p := g.watched[pid]; bytes > g.limit {
			p.exceeded.Store(true)
			p.leash.cut()
		}
	}
}

// Close stops the watch and waits for its goroutine.
func (g *Guard) Close() {
	g.once.Do(func() { close(g.stop) })
	g.done.Wait()
}
