package torch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/easyrl/easyrl/backend/schedule"
	"github.com/easyrl/easyrl/torch/wire"
)

// Session trains a model on ranks. Only one goroutine may use it. If a rank fails, the running method
// replaces all ranks and continues. It returns a rank's error only if replacing the ranks did not help.
type Session struct {
	cfg      Config
	listener *listener
	group    *group        // nil while there are no ranks
	ready    chan struct{} // see Ready
	alarm    *time.Timer   // signals ready at the next deadline, while no method runs

	// The work that replaced ranks repeat: see the package comment.
	point   point
	points  int       // number of folder names used so far in the folder of recovery points
	past    []*update // updates since the recovery point
	now     *update   // the update whose gradients accumulate
	updates int       // number of updates made
	lastID  int64     // last ID of a piece

	lockstep  bool          // see wire.Lockstep
	fresh     bool          // whether the policy equals the last published weights
	toDerive  []*micro      // micro-batches whose log-probabilities are complete and wait for derive, in that order
	deriving  bool          // whether a derive is running, which may call Score
	deriveErr error         // error of a derive since the last Discard
	finiteErr error         // result of CheckFinite
	info      wire.Ready    // the first rank's message
	memory    []wire.Memory // by rank
	restarts  int           // number of restarts since the last completed update
	rows      int           // max. rows of a piece; 0 for no limit
	depth     int           // max. pieces in flight on a replica
	scored    *piece        // the piece that ScoreAs computes, which belongs to no update; nil if none
	broken    error         // why the session has ended; nil while it works
	final     bool          // whether End was called
}

// point is a recovery point: a state that ranks can load.
type point struct {
	state   string // folder; empty for the starting weights
	updates int    // number of updates before it
	own     bool   // whether the session wrote the folder
}

// update is an optimizer update with its micro-batches.
type update struct {
	plan      schedule.Plan
	micros    []*micro         // in the order of Pass
	pieces    map[int64]*piece // the pieces of micros, by ID
	step      wire.Step        // set by Step
	discarded bool
}

// Open starts a session and returns when its ranks have loaded their models.
func Open(ctx context.Context, cfg Config) (*Session, error) {
	ln, err := net.Listen("tcp", cmp.Or(cfg.Listen, "127.0.0.1:0"))
	if err != nil {
		return nil, fmt.Errorf("torch: listen for ranks: %w", err)
	}
	return open(ctx, cfg, ln)
}

// open starts a session that accepts ranks from ln. It takes ownership of ln, even if it fails.
func open(ctx context.Context, cfg Config, ln net.Listener) (*Session, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("torch: %w", err), ln.Close())
	}
	s := &Session{
		cfg: cfg, listener: listen(ln), ready: make(chan struct{}, 1), updates: cfg.Updates, depth: schedule.Depth,
		point: point{state: cfg.State, updates: cfg.Updates}, memory: make([]wire.Memory, cfg.world()),
	}
	err = os.RemoveAll(s.cfg.recovery()) // left by an earlier process
	if err == nil {
		if cfg.Python == "" {
			s.cfg.Say("waiting for %d PyTorch ranks at %s", cfg.world(), s.listener.Addr().String())
		}
		for err == nil && s.group == nil {
			if s.group, err = s.start(ctx); died(err) {
				err = s.countRestart(err)
			}
		}
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("torch: %w", err)
	}
	s.lockstep = s.group.lockstep()
	s.group.warnFallback(s.cfg.Warn)
	s.remember()
	s.cfg.Mode = s.info.Mode // restarted ranks must use the same mode
	s.now = s.newUpdate()
	return s, nil
}

// End makes Close tell the ranks that the run has ended. They then exit with status 0, and
// no loop needs to start them again.
func (s *Session) End() { s.final = true }

// Close ends all ranks and removes the recovery points. Without End, ranks that the session did
// not start exit with status 1, so that the loop around torchrun starts them again for the run
// that resumes.
func (s *Session) Close() {
	const grace = 5 * time.Second
	if s.alarm != nil {
		s.alarm.Stop()
	}
	if s.group != nil && (s.final || s.group.launch != nil) {
		s.group.end(grace)
		s.group = nil
	}
	s.dropRanks()
	s.listener.close()
	_ = os.RemoveAll(s.cfg.recovery()) // the next session removes what is left
}

// RankInfo describes a rank.
type RankInfo struct {
	Hello wire.Hello // without the token
	Ready wire.Ready
}

// Ranks describes the current ranks, by number. It is nil while there are none.
func (s *Session) Ranks() []RankInfo {
	var infos []RankInfo
	if s.group == nil {
		return nil
	}
	for _, r := range s.group.ranks {
		info := RankInfo{r.hello, r.ready}
		info.Hello.Token = ""
		infos = append(infos, info)
	}
	return infos
}

// newUpdate returns an update without micro-batches.
func (s *Session) newUpdate() *update {
	return &update{plan: s.newPlan(), pieces: map[int64]*piece{}}
}

func (s *Session) newPlan() schedule.Plan { return schedule.New(s.cfg.DP, s.depth, s.lockstep) }

// notify sends a value to Ready's channel. It never blocks.
func (s *Session) notify() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// attempt calls op with ranks that hold the session's state. If op returns a fault of a rank, attempt
// restarts all ranks, restores their state and calls op again. It returns any other error. If restarting
// does not help, it sets broken, which ends the session. op may call attempt again through a derive that
// calls Score; if that replaces the ranks, op returns errReplaced, and attempt calls it with the new ranks.
func (s *Session) attempt(ctx context.Context, op func(g *group) error) error {
	if s.alarm != nil {
		s.alarm.Stop()
	}
	for s.broken == nil {
		var err error
		if s.group == nil {
			err = s.restore(ctx)
		}
		if err == nil {
			err = op(s.group)
		}
		var failed *fault
		switch {
		case s.broken != nil: // set by a call within a derive
			return s.broken
		case errors.Is(err, errReplaced):
			continue
		case !errors.As(err, &failed): // also if err is nil
			s.setAlarm()
			return err
		}
		if s.group != nil {
			failed = s.group.findOutOfMemory(failed)
		}
		var full *outOfMemory
		if errors.As(failed, &full) {
			s.dropRanks()
			err = s.shrink(failed, full)
		} else {
			if s.group != nil {
				err = s.group.explain(failed)
			}
			s.dropRanks()
			err = s.countRestart(err)
		}
		if err != nil {
			s.broken = fmt.Errorf("torch: %w", err)
		}
	}
	return s.broken
}

// countRestart counts a restart and warns of its cause. It returns an error if there were too many.
func (s *Session) countRestart(cause error) error {
	s.restarts++
	if s.restarts > maxRestarts {
		return fmt.Errorf("%w; restarted %d times since update %d", cause, maxRestarts, s.updates)
	}
	s.cfg.Warn("%v; %s (%d of %d)", cause, s.restarting(), s.restarts, maxRestarts)
	return nil
}

// restarting describes how ranks start again, for warnings.
func (s *Session) restarting() string {
	how := "restarting all ranks"
	if s.cfg.Python == "" {
		how = "waiting for all ranks to connect again"
	}
	return fmt.Sprintf("%s, from update %d", how, s.point.updates)
}

// errReplaced ends an operation of attempt whose ranks were replaced while it ran a derive.
var errReplaced = errors.New("ranks were replaced")

// setAlarm makes Ready's channel receive a value when the next answer becomes overdue, so that the
// session's goroutine calls Poll, which detects that.
func (s *Session) setAlarm() {
	if s.group == nil {
		return
	}
	if deadline := s.group.deadline(); !deadline.IsZero() {
		s.alarm = time.AfterFunc(time.Until(deadline), s.notify)
	}
}

// dropRanks ends all ranks.
func (s *Session) dropRanks() {
	if s.group != nil {
		s.group.close()
		s.group = nil
	}
}

// start starts the ranks, or waits for them, and makes them load the recovery point.
func (s *Session) start(ctx context.Context) (g *group, err error) {
	g = &group{ranks: make([]*rank, s.cfg.world()), events: make(chan event, 16*s.cfg.world())}
	defer func() {
		if err != nil {
			g.close()
			g = nil
		}
	}()
	token := s.cfg.Token
	if s.cfg.Python != "" {
		if g.launch, err = startLaunch(&s.cfg, s.listener.Addr().String()); err != nil {
			return g, err
		}
		token = g.launch.token
	}
	if err := g.gather(ctx, &s.cfg, s.listener, token, s.notify); err != nil {
		return g, g.explain(err)
	}
	if err := g.welcome(ctx, &s.cfg, s.point); err != nil {
		return g, g.explain(err)
	}
	return g, nil
}

// restore starts the ranks from the recovery point, repeats the updates since then, and restarts the plan
// of the current update. It sets s.group if it succeeds.
func (s *Session) restore(ctx context.Context) error {
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
		return fmt.Errorf("torch: ranks work in mode %s after a restart, expected the mode before it",
			g.ranks[0].ready.Mode)
	}
	for _, u := range s.past {
		if err := s.repeat(ctx, g, u); err != nil {
			var failed *fault
			if errors.As(err, &failed) {
				err = g.findOutOfMemory(failed)
			}
			g.close()
			return err
		}
	}
	s.now.plan.Restart()
	s.group = g
	s.remember()
	return nil
}

// repeat repeats an update and its micro-batches.
func (s *Session) repeat(ctx context.Context, g *group, u *update) error {
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

// remember stores the reports that the ranks sent when they had loaded their models.
func (s *Session) remember() {
	s.info = s.group.ranks[0].ready
	for i, r := range s.group.ranks {
		s.memory[i] = r.ready.Memory
	}
}
