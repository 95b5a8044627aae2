package torch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/easyrl/easyrl/torch/schedule"
	"github.com/easyrl/easyrl/torch/wire"
)

// Session trains a model on ranks. Only one goroutine may use it. Its methods replace failed
// ranks before they return; an error other than a caller's own means that this did not help.
type Session struct{ crew }

// crew keeps the ranks at work and replaces them.
type crew struct {
	cfg      Config
	listener *listener
	gang     *gang         // nil while there are no ranks
	ready    chan struct{} // see Session.Ready
	alarm    *time.Timer   // of the next deadline, while the caller does something else

	point   point
	points  int       // names given to folders of recovery points
	past    []*update // since the recovery point
	now     *update   // being accumulated
	updates int       // made
	lastID  int64     // of micro-batches

	lockstep bool     // see wire.Lockstep
	fresh    bool     // the policy equals the last published weights
	derive   []*micro // to be derived, in the order of their answers
	deriving bool
	refused  error         // of a derive since the last Discard
	finite   error         // of the weights after the last update
	info     wire.Ready    // of the first rank
	memory   []wire.Memory // of each rank
	restarts int           // since the last completed update
	broken   error         // the session has ended
}

// point is a recovery point: a state that ranks can load.
type point struct {
	state   string // folder; empty for the starting weights
	updates int    // made before
	own     bool   // the folder is the session's
}

// update is an optimizer update with its micro-batches.
type update struct {
	plan   schedule.Plan
	micros map[int64]*micro
	step   wire.Step // set when it is made
	void   bool      // discarded
}

// Open starts a session and returns when its ranks have loaded their models.
func Open(ctx context.Context, cfg Config) (*Session, error) {
	ln, err := net.Listen("tcp", cmp.Or(cfg.Listen, "127.0.0.1:0"))
	if err != nil {
		return nil, fmt.Errorf("torch: listen for ranks: %w", err)
	}
	return open(ctx, cfg, ln)
}

// open starts a session that accepts ranks from ln, which it closes.
func open(ctx context.Context, cfg Config, ln net.Listener) (*Session, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("torch: %w", err), ln.Close())
	}
	s := &Session{crew{cfg: cfg, listener: listen(ln), ready: make(chan struct{}, 1), updates: cfg.Updates,
		point: point{state: cfg.State, updates: cfg.Updates}, memory: make([]wire.Memory, cfg.world())}}
	err = os.RemoveAll(s.folder()) // of an earlier process
	if err == nil {
		if cfg.Python == "" {
			s.cfg.Say("waiting for %d PyTorch ranks at %s", cfg.world(), s.Address())
		}
		s.gang, err = s.start(ctx)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("torch: %w", err)
	}
	s.lockstep = s.gang.lockstep()
	s.remember()
	s.cfg.Mode = s.info.Mode // also after a restart
	s.now = s.newUpdate()
	return s, nil
}

// Address returns the address at which ranks connect.
func (s *Session) Address() string { return s.listener.Addr().String() }

// folder returns the folder of the session's recovery points.
func (s *crew) folder() string { return filepath.Join(s.cfg.Dir, "recovery") }

// Close ends all ranks and removes the recovery points.
func (s *Session) Close() {
	const grace = 5 * time.Second
	if s.alarm != nil {
		s.alarm.Stop()
	}
	if s.gang != nil {
		s.gang.end(grace)
		s.gang = nil
	}
	s.listener.close()
	_ = os.RemoveAll(s.folder()) // the next session tries again
}

// end asks the ranks to exit and gives them some time for it.
func (g *gang) end(grace time.Duration) {
	timeout := time.NewTimer(grace)
	defer timeout.Stop()
	left := map[*rank]bool{}
	for _, r := range g.ranks {
		left[r] = true
		_ = r.send(wire.End{}, wire.Body{}) // otherwise closing ends it
	}
	for late := false; len(left) > 0 && !late; {
		select {
		case e := <-g.events:
			if e.err != nil {
				delete(left, e.rank)
			}
		case <-timeout.C:
			late = true
		}
	}
	g.close()
}

// RankInfo describes a rank.
type RankInfo struct {
	Hello wire.Hello // without the token
	Ready wire.Ready
}

// Ranks describes the ranks as they are now.
func (s *Session) Ranks() []RankInfo {
	var infos []RankInfo
	if s.gang == nil {
		return nil
	}
	for _, r := range s.gang.ranks {
		info := RankInfo{r.hello, r.ready}
		info.Hello.Token = ""
		infos = append(infos, info)
	}
	return infos
}

func (s *crew) newUpdate() *update {
	return &update{plan: schedule.New(s.cfg.DP, s.lockstep), micros: map[int64]*micro{}}
}

// notify makes Ready receive. It never blocks.
func (s *crew) notify() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// attempt calls op with ranks that hold the session's state. If a rank fails, it starts all
// of them again, restores their state, and repeats op, which continues where it was.
func (s *crew) attempt(ctx context.Context, op func(g *gang) error) error {
	if s.alarm != nil {
		s.alarm.Stop()
	}
	for s.broken == nil {
		var err error
		if s.gang == nil {
			err = s.restore(ctx)
		}
		if err == nil {
			err = op(s.gang)
		}
		var failed *fault
		switch {
		case s.broken != nil: // within a derive
			return s.broken
		case errors.Is(err, errReplaced):
			continue
		case !errors.As(err, &failed):
			s.watch()
			return err
		}
		if s.gang != nil {
			err = s.gang.launch.explain(failed)
		}
		s.lose()
		if s.restarts++; s.restarts > maxRestarts {
			s.broken = fmt.Errorf("torch: %w; restarted %d times since update %d", err, maxRestarts, s.updates)
			break
		}
		how := "restarting all ranks"
		if s.cfg.Python == "" {
			how = "waiting for all ranks to connect again"
		}
		s.cfg.Warn("%v; %s, from update %d (%d of %d)", err, how, s.point.updates, s.restarts, maxRestarts)
	}
	return s.broken
}

// errReplaced ends an operation on ranks that have been replaced within a derive.
var errReplaced = errors.New("ranks were replaced")

// watch makes Ready receive when the next answer is late.
func (s *crew) watch() {
	if s.gang == nil {
		return
	}
	if at := s.gang.deadline(); !at.IsZero() {
		s.alarm = time.AfterFunc(time.Until(at), s.notify)
	}
}

// lose ends all ranks.
func (s *crew) lose() {
	if s.gang != nil {
		s.gang.close()
		s.gang = nil
	}
}

// restore starts the ranks from the recovery point and repeats the updates since then. The
// plan of the current update begins again.
func (s *crew) restore(ctx context.Context) error {
	g, err := s.start(ctx)
	if err != nil {
		var failed *fault
		if ctx.Err() == nil && !errors.As(err, &failed) {
			return &fault{"", err}
		}
		return err
	}
	if g.lockstep() != s.lockstep {
		g.close()
		return fmt.Errorf("torch: ranks work in mode %s after a restart, expected the mode before it", g.ranks[0].ready.Mode)
	}
	for _, u := range s.past {
		if err := s.repeat(ctx, g, u); err != nil {
			g.close()
			return err
		}
	}
	s.now.plan.Restart()
	s.gang = g
	s.remember()
	return nil
}

// repeat makes an update again.
func (s *crew) repeat(ctx context.Context, g *gang, u *update) error {
	u.plan.Restart()
	for !u.plan.Idle() {
		if err := s.order(g, u, schedule.None); err != nil {
			return err
		}
		if u.plan.Idle() {
			break
		}
		if err := g.receive(ctx); err != nil {
			return err
		}
	}
	result, err := s.step(ctx, g, u.step)
	if err == nil && !result.finite {
		err = g.ranks[0].fault(fmt.Errorf("update %d: gradients are not finite when repeated", u.step.Update))
	}
	return err
}

// remember keeps what the ranks have said.
func (s *crew) remember() {
	s.info = s.gang.ranks[0].ready
	for i, r := range s.gang.ranks {
		s.memory[i] = r.ready.Memory
	}
}
