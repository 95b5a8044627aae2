// Package membership decides which servers belong to a run's fleet: configured ones, those
// on a watched list and those that join at the control address.
package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/report/control"
	"github.com/easyrl/easyrl/report/trace"
)

// Config configures a run's servers.
type Config struct {
	// Endpoints are the configured servers. They stay in the fleet.
	Endpoints []remote.Endpoint
	// Kind is the kind of servers on the watched list whose entries name none. If it is empty, each
	// of these servers is asked for its kind.
	Kind string
	// Watch is a file or a DNS name that lists servers, in the format of package discover;
	// empty watches nothing.
	Watch string
	// MinInstances is the number of instances that the run needs to start, including
	// engines in its process.
	MinInstances int
	// Wait is the maximum time for which Begin waits for MinInstances.
	Wait time.Duration
	// MayJoin means that servers may join after Connect, from the watched list or at the
	// control address.
	MayJoin bool
	// Dir is the run's folder, where instances.json is kept; empty keeps nothing. When Begin is
	// called, Dir must exist and contain the Trainer.ID of Client: if the run is killed, its next
	// process needs the ID to claim the servers again.
	Dir string
	// Client configures the client of every server. Membership fills in URL, Kind and Store.
	Client remote.Config
	// WeightsDir is the folder in which weights are written for servers that read them from files.
	WeightsDir string
	// RemoveWeights makes Close remove WeightsDir.
	RemoveWeights bool
	// Spans records the requests and publishes of each server; may be nil.
	Spans *trace.Spans
	// Dial connects to a server; nil connects over HTTP.
	Dial Dialer
}

// Membership manages the servers of a run's fleet. Connect must be called first, then Begin, and
// Close last. The other methods may be called concurrently, from Begin on.
type Membership struct {
	cfg       Config
	fleet     *fleet.Fleet
	announcer *Announcer
	state     *stateFile
	servers   *servers
	connector *connector
	monitor   *monitor
	cleanup   func() error // removes the weights written for servers

	ctx    context.Context // ends with Close or the run
	cancel context.CancelFunc
	tasks  conc.WaitGroup // goroutines of the connector, the monitor and Drain
}

// New returns the membership of a fleet whose Notify is the announcer's FleetEvent. The fleet may
// already contain engines of the run's process. If New succeeds, the membership owns and closes f and
// announcer. ctx is the run's context.
func New(ctx context.Context, cfg Config, f *fleet.Fleet, announcer *Announcer) (*Membership, error) {
	m := &Membership{cfg: cfg, fleet: f, announcer: announcer, cleanup: func() error { return nil }}
	var err error
	if m.state, err = openState(cfg.Dir, announcer.notes); err != nil {
		return nil, err
	}
	if m.cfg.Dial == nil {
		if m.cfg.Dial, m.cleanup, err = newDialer(&m.cfg); err != nil {
			return nil, err
		}
	}
	m.ctx, m.cancel = context.WithCancel(ctx)
	m.servers = &servers{fleet: f, dial: m.cfg.Dial, spans: cfg.Spans, announcer: announcer, state: m.state,
		joined: make(chan struct{}, 1),
		byID:   map[string]*server{}, pending: map[string]bool{}, evicted: map[string]bool{}}
	m.connector = &connector{cfg: &m.cfg, servers: m.servers, ctx: m.ctx, tasks: &m.tasks,
		wanted: map[string]context.CancelFunc{}}
	m.monitor = &monitor{servers: m.servers, isWanted: m.connector.isWanted}
	return m, nil
}

// Connect connects to the configured servers without claiming them. If some cannot be added, no
// server may join later, and fewer than MinInstances instances are usable, it returns an error.
// Otherwise Begin tries those servers again.
func (m *Membership) Connect(ctx context.Context) error {
	err := errors.Join(m.connector.connect(ctx)...)
	return m.cfg.enough(m.usable(), err)
}

// Begin claims the connected servers and lets others join until Close: configured ones that Connect
// could not add or that another run has claimed since, those on the watched list, and those that
// call the control address. live serves that address; it may be nil. Begin returns nil when the run
// has MinInstances. It returns an error that wraps inference.ErrNoInstance after Config.Wait, or the
// cause of ctx.
func (m *Membership) Begin(ctx context.Context, live *control.Server) error {
	m.announcer.serve(live)
	m.connector.claim(ctx)
	m.connector.reconnect()
	m.connector.watch()
	m.tasks.Go(func() { m.monitor.run(m.ctx) })
	live.Serve(m, fleet.States(), remote.Names()...)
	return m.await(ctx)
}

// await waits for MinInstances, as Begin describes.
func (m *Membership) await(ctx context.Context) error {
	deadline := time.NewTimer(m.cfg.Wait)
	defer deadline.Stop()
	for noted := false; ; noted = true {
		n := m.usable()
		if n >= m.cfg.MinInstances {
			return nil
		}
		if !noted {
			m.announcer.say(notice.Progress, "waiting for instances: %d available, expected at least %d", n,
				m.cfg.MinInstances)
		}
		select {
		case <-m.servers.joined:
		case <-deadline.C:
			return fmt.Errorf("%d instances are available after %v, expected at least %d (inference.min_instances): %w",
				n, m.cfg.Wait, m.cfg.MinInstances, inference.ErrNoInstance)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// usable returns the number of instances that hold the weights or may take them.
func (m *Membership) usable() (n int) {
	for _, st := range m.fleet.Status().Instances {
		if st.State != fleet.Dead && st.State != fleet.Draining && st.State != fleet.Retired {
			n++
		}
	}
	return n
}

// Close closes the fleet and the announcer and waits for all sampling and goroutines to end.
func (m *Membership) Close() error {
	m.announcer.stop()
	m.cancel()
	m.tasks.Wait()
	err := errors.Join(m.fleet.Close(), m.cleanup())
	m.announcer.Close()
	return err
}

// List returns the fleet's instances in the order in which they joined.
func (m *Membership) List() []control.Instance { return m.servers.list() }

// Add adds the server at url to the fleet. If kind is empty, Add asks the server.
func (m *Membership) Add(ctx context.Context, url, kind string) (control.Instance, error) {
	e, err := remote.ParseEndpoint(url, kind)
	if err != nil {
		return control.Instance{}, fmt.Errorf("instance %w: %w", control.ErrInvalid, err)
	}
	return m.servers.add(ctx, e)
}

// Drain sends server id no more requests and returns at once. The server stays in the fleet.
func (m *Membership) Drain(id string) (control.Instance, error) {
	srv, err := m.servers.removable(id)
	if err != nil {
		return control.Instance{}, fmt.Errorf("drain instance %s: %w", id, err)
	}
	in, ok := m.servers.instance(id)
	if ok && (in.State == fleet.Draining.String() || in.State == fleet.Drained) {
		return in, nil
	}
	ended, end := context.WithCancel(m.ctx)
	end()
	_ = m.fleet.Drain(ended, srv) // sets the state; with an ended context it does not wait
	m.state.setRemoved(id, true)
	if in, ok = m.servers.instance(id); !ok {
		return in, fmt.Errorf("drain instance %s: %w", id, control.ErrNotFound)
	}
	m.announcer.notes.Say(notice.Progress, "instance %s is draining and gets no new work", id)
	m.tasks.Go(func() {
		if m.fleet.Drain(m.ctx, srv) == nil {
			m.announcer.notes.Say(notice.Progress, "instance %s has finished its work", id)
		}
	})
	return in, nil
}

// Remove removes server id from the fleet at once. Other instances get its requests.
func (m *Membership) Remove(ctx context.Context, id string) error {
	srv, err := m.servers.removable(id)
	if err == nil {
		m.state.setRemoved(id, true)
		err = m.servers.remove(ctx, srv)
	}
	if err != nil {
		return fmt.Errorf("remove instance %s: %w", id, err)
	}
	return nil
}

// Removed reports whether a user has drained or removed server id, in this process or in an earlier
// one of the run, and nobody has added it since.
func (m *Membership) Removed(id string) bool { return m.state.isRemoved(id) }

// Evicted reports whether server id left because it did not answer. It may rejoin.
func (m *Membership) Evicted(id string) bool { return m.servers.isEvicted(id) }
