package torch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/backend/schedule"
	"github.com/easyrl/easyrl/backend/session"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/torch/wire"
)

// Session trains a model on PyTorch ranks. Only one goroutine may use it.
type Session struct {
	*session.Session[*group]

	cfg      Config
	listener *listener
	fresh    bool          // whether the policy equals the last published weights
	info     wire.Ready    // the first rank's message; zero before the first start
	memory   []wire.Memory // by rank
	final    bool          // whether End was called
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
	s := &Session{cfg: cfg, listener: listen(ln), memory: make([]wire.Memory, cfg.world())}
	how := "restarting all ranks"
	if cfg.Python == "" {
		how = "waiting for all ranks to connect again"
		cfg.Say("waiting for %d PyTorch ranks at %s", cfg.world(), s.listener.Addr().String())
	}
	s.Session = session.New(session.Config[*group]{
		Name: "torch", Start: s.start, How: how, Depth: schedule.Depth,
		Plan: func(depth int) schedule.Plan {
			return schedule.New(cfg.DP, depth, s.info.Mode == wire.Lockstep)
		},
		From:   session.Point{Folder: cfg.State, Updates: cfg.Updates},
		Folder: cfg.recovery(), Warn: cfg.Warn,
	})
	if err := s.Session.Open(ctx, died); err != nil {
		s.Close()
		return nil, fmt.Errorf("torch: %w", err)
	}
	s.Current().warnFallback(s.cfg.Warn)
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
	if g := s.Current(); g != nil && (s.final || g.launch != nil) {
		g.end(grace)
	}
	s.Session.Close()
	s.listener.close()
}

// Lanes returns the number of replicas. Each computes one micro-batch at a time.
func (s *Session) Lanes() int { return s.cfg.DP }

// RankInfo describes a rank.
type RankInfo struct {
	Hello wire.Hello // without the token
	Ready wire.Ready
}

// Ranks describes the current ranks, by number. It is nil while there are none.
func (s *Session) Ranks() []RankInfo {
	var infos []RankInfo
	if s.Current() == nil {
		return nil
	}
	for _, r := range s.Current().ranks {
		info := RankInfo{r.hello, r.ready}
		info.Hello.Token = ""
		infos = append(infos, info)
	}
	return infos
}

// start implements session.Config.Start. Restarted ranks must work in the mode of the first ones.
func (s *Session) start(ctx context.Context, from session.Point) (*group, error) {
	restarted := s.info.Mode != ""
	g := newGroup(&s.cfg, s.memory)
	if err := s.gather(ctx, g, from); err != nil {
		g.Close()
		if restarted && ctx.Err() == nil && !errors.As(err, new(*session.Fault)) {
			err = &session.Fault{Err: err}
		}
		return nil, err
	}
	info := g.ranks[0].ready
	if restarted && info.Mode != s.info.Mode {
		g.Close()
		return nil, fmt.Errorf("ranks work in mode %s after a restart, expected the mode before it", info.Mode)
	}
	s.info = info
	s.cfg.Mode = info.Mode
	for i, r := range g.ranks {
		s.memory[i] = r.ready.Memory
	}
	return g, nil
}

// gather starts the ranks of a group, or waits for them, and makes them load a recovery point.
func (s *Session) gather(ctx context.Context, g *group, from session.Point) (err error) {
	token := s.cfg.Token
	if s.cfg.Python != "" {
		if g.launch, err = startLaunch(&s.cfg, s.listener.Addr().String()); err != nil {
			return err
		}
		token = g.launch.token
	}
	err = g.gather(ctx, s.listener, token, s.Notify)
	if err == nil {
		err = g.welcome(ctx, from)
	}
	if err != nil {
		return g.explain(err)
	}
	return nil
}

// Pass is Pass of session.Session. While the policy equals the published weights, its log-probabilities are
// also those of the old policy.
func (s *Session) Pass(ctx context.Context, l *attention.Layout, derive backend.Derive) error {
	return s.Session.Pass(ctx, l, 0, func(out backend.Outputs) (backend.Values, error) {
		if s.fresh && len(out.Values) > 0 {
			out.Values[backend.OldPolicy] = out.Values[backend.Policy]
			out.Values[backend.Sampler] = out.Values[backend.Policy]
		}
		return derive(out)
	})
}

// Step implements backend.Models. Every session.RecoveryEvery updates, it also writes a recovery point.
func (s *Session) Step(ctx context.Context, u backend.Update) (norm float64, err error) {
	if !finite(u.Scale) || !finite(u.LR) {
		s.Discard()
		return 0, fmt.Errorf("optimizer step %d: gradient scale %v, learning rate %v: %w", u.Number, u.Scale, u.LR,
			optim.ErrNonFinite)
	}
	norm, err = s.Session.Step(ctx, u)
	if err == nil || errors.Is(err, optim.ErrNonFinite) {
		s.fresh = false
	}
	if err == nil && s.CheckFinite() == nil && s.Kept() >= session.RecoveryEvery {
		err = s.savePoint(ctx)
	}
	return norm, err
}

// Score returns the log-probabilities of a layout's targets under the policy, at Config.Temperature. A
// derive may call it.
func (s *Session) Score(ctx context.Context, l *attention.Layout) ([]float32, error) {
	return s.ScoreAs(ctx, l, "", s.cfg.Temperature)
}

// ScoreAs returns the log-probabilities of a layout's targets at a temperature, under the
// weights in a folder, or under the policy if folder is empty.
func (s *Session) ScoreAs(
	ctx context.Context, l *attention.Layout, folder string, temperature float64,
) ([]float32, error) {
	out, err := s.Logprobs(ctx, l, func(g *group, id int64, part *attention.Layout) ([]float32, error) {
		return g.score(ctx, wire.Score{ID: id, Model: folder, Temperature: temperature}, part)
	})
	if err != nil {
		return nil, fmt.Errorf("score: %w", err)
	}
	return out, nil
}
