// Package ranks starts the ranks that train a run. With easyrl's kernels they are a mesh: goroutines
// of one process, or processes that a launcher such as torchrun, Slurm or mpirun started. With
// PyTorch they are processes of torch/worker.
package ranks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/parallel/tcp"
	"github.com/easyrl/easyrl/report/control/client"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/run/cores"
	trimodel "github.com/easyrl/easyrl/tri_model"
	"github.com/easyrl/easyrl/tri_model/sharded"
)

// CheckMesh returns a usage error if a run's mesh cannot divide a model. It gives all reasons and the
// nearest meshes that can.
func CheckMesh(cfg *configs.Config, shape *model.Config) error {
	m := cfg.Parallel.Mesh()
	err := shape.CheckMesh(m)
	if cfg.Train.Backend == configs.PyTorch {
		return nil
	}
	if err == nil {
		err = checkSteps(cfg.Device.Numerics, m, shape)
	}
	if err == nil {
		return nil
	}
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if near := nearest(m, shape, cfg.Device.Numerics); len(near) > 0 {
		text += ". The nearest meshes that work: " + strings.Join(near, "; ")
	}
	return usage.Errorf("[parallel] %s", text)
}

// checkSteps returns an error if tensor ranks cut the chains of attention's output projection within a step of BF16.
// They cut those of the feed-forward layer at multiples of npu.MatrixBlock.
func checkSteps(numerics string, m parallel.Mesh, shape *model.Config) error {
	const step = 16 // products that a chain takes at a time
	if numerics != npu.BF16.String() || m.TP == 1 {
		return nil
	}
	for tp := range m.TP {
		part, err := shape.Shard(m, parallel.Coord{TP: tp}, false)
		if err != nil {
			return err
		}
		if part.Heads*part.HeadDim%step != 0 {
			return fmt.Errorf("tp is %d and a rank has %d heads of %d values, expected a multiple of %d "+
				"values with device.numerics = %q", m.TP, part.Heads, part.HeadDim, step, npu.BF16)
		}
	}
	return nil
}

// nearest returns up to three meshes near m that can divide a model in numerics. They have as many ranks as m or, if
// there are none, the next smaller possible number.
func nearest(m parallel.Mesh, shape *model.Config, numerics string) (texts []string) {
	type candidate struct {
		mesh     parallel.Mesh
		distance float64
	}
	for ranks := m.Size(); ranks > 0 && len(texts) == 0; ranks-- {
		var all []candidate
		for tp := 1; tp <= min(ranks, shape.KVHeads); tp++ {
			for pp := 1; ranks%tp == 0 && pp <= min(ranks/tp, shape.Layers); pp++ {
				c := parallel.Mesh{DP: ranks / tp / pp, TP: tp, PP: pp}
				set := parallel.Settings{DP: c.DP, TP: c.TP, PP: c.PP, Reduce: parallel.Exact}
				if c.Size() != ranks || set.Validate() != nil || shape.CheckMesh(c) != nil ||
					checkSteps(numerics, c, shape) != nil {
					continue
				}
				ratio := func(a, b int) float64 { return float64(max(a, b)) / float64(min(a, b)) } // 1 or more
				all = append(all, candidate{c, ratio(c.DP, m.DP) * ratio(c.TP, m.TP) * ratio(c.PP, m.PP)})
			}
		}
		slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.distance, b.distance) })
		for _, c := range all[:min(3, len(all))] {
			texts = append(texts, c.mesh.String())
		}
	}
	return texts
}

// Process returns this process's place among the run's processes. Without a launcher it is the only one. It
// returns a usage error if a launcher started another number of processes than the run has ranks.
func Process(cfg *configs.Config) (parallel.Process, error) {
	ranks := cfg.Parallel.Mesh().Size()
	if ranks == 1 || cfg.Train.Backend == configs.PyTorch {
		return parallel.Process{Size: 1}, nil
	}
	p, err := parallel.ThisProcess()
	switch {
	case err != nil:
		return p, usage.Wrap(err)
	case p.Size > 1 && p.Size != ranks:
		return p, usage.Errorf("the launcher started %d processes, but [parallel] sets %d ranks (%s)",
			p.Size, ranks, cfg.Parallel.Mesh())
	}
	return p, nil
}

// Follows reports whether this process only runs a rank other than 0.
func Follows(cfg *configs.Config) (bool, error) {
	p, err := Process(cfg)
	return p.Rank > 0, err
}

// Peers sets how this process treats those of other ranks.
type Peers struct {
	Silence time.Duration // see tcp.Config
	Note    func(format string, args ...any)
	Joined  func() // called by Follow when all ranks have joined; may be nil

	listens time.Duration // see tcp.Config.Listens
}

// Follow runs a rank other than 0 until rank 0 ends. After others have lost another rank, it joins the world that
// follows. Its error is sharded.ErrStopped or sharded.ErrFailed if rank 0's run does not end.
func Follow(ctx context.Context, cfg *configs.Config, dev npu.Device, peers Peers) error {
	p, err := Process(cfg)
	if err != nil {
		return err
	}
	end, err := join(ctx, cfg, p, peers)
	if err != nil {
		return err
	}
	if peers.Joined != nil {
		peers.Joined()
	}
	for {
		// A signal reaches all processes, but rank 0 needs this one for its last checkpoint.
		err = sharded.Follow(context.WithoutCancel(ctx), dev, end, trace.Track{})
		var failed *parallel.RankError
		if !errors.As(err, &failed) || !failed.Lost || failed.Rank == 0 || failed.Rank == p.Rank || !rejoins(p) {
			break
		}
		peers.Note("%v; joining again", err)
		again := peers
		again.listens = rank0Listens
		joining, cancel := endingWith(context.Background(), ctx, lastJoin)
		var joinErr error
		end, joinErr = join(joining, cfg, p, again)
		cancel()
		if joinErr != nil {
			return fmt.Errorf("%w; %w", err, joinErr)
		}
	}
	if errors.Is(err, sharded.ErrStopped) || errors.Is(err, sharded.ErrFailed) {
		<-time.After(followersLive)
	}
	return err
}

// rank0Listens is how long rank 0 may take, after a rank was lost, to listen for the others again. If its run has
// ended instead, they end too.
const rank0Listens = time.Minute

// lastJoin is how long after a signal a rank still joins again. Rank 0 does not wait for others after a signal, but
// all may have joined when it arrives.
const lastJoin = 5 * time.Second

// endingWith returns a copy of ctx that also ends the given time after run, with run's cause.
func endingWith(ctx, run context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(run, func() {
		select {
		case <-time.After(after):
			cancel(context.Cause(run))
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// rejoins reports whether lost ranks of p's run are replaced: those over TCP are.
func rejoins(p parallel.Process) bool { return p.Size > 1 && !(p.MPI && withMPI) }

// followersLive is how much longer than rank 0's process the other processes of a stopped or failed run live.
// Launchers may kill rank 0's process once another one has ended.
const followersLive = time.Second

// EndMesh records that the run is complete, or stopped if stopped is true. Models on a mesh send this to the other
// processes when they are closed. Without a call, the other processes treat the run as failed. Other models, and
// nil, ignore it.
func EndMesh(models backend.Models, stopped bool) {
	if m, ok := models.(interface{ End(stopped bool) }); ok {
		m.End(stopped)
	}
}

// MeshDeps holds what StartMesh needs besides the run's configuration.
type MeshDeps struct {
	Device npu.Device
	Models trimodel.Config
	Whole  bool    // see sharded.Config
	Canary []int32 // see sharded.Config
	Shape  *model.Config
	Each   func(source.Use) error // calls its argument with each tensor of the starting weights
	Track  func(name string) trace.Track
	Peers  Peers
	Warn   func(format string, args ...any)
	// Recovery returns a folder for recovery points, from which ranks in other processes are replaced. Its parent
	// exists, and nothing else uses it. It is called once all ranks have joined.
	Recovery func() (string, error)
}

// Mesh holds the models of a run on the ranks of a mesh.
type Mesh struct {
	*sharded.Models
	mesh   parallel.Mesh
	counts []*counters // of the ranks in this process, rank 0's first
}

// StartMesh distributes the starting weights over the run's ranks: goroutines of this process, or the
// processes that a launcher started.
func StartMesh(ctx context.Context, cfg *configs.Config, deps *MeshDeps) (*Mesh, error) {
	p, err := Process(cfg)
	var end parallel.Transport
	if err == nil && p.Size > 1 {
		end, err = join(ctx, cfg, p, deps.Peers)
	}
	if err != nil {
		return nil, err
	}
	ends := []parallel.Transport{end}
	if p.Size == 1 {
		ends = nil
		for _, end := range parallel.NewLocal(cfg.Parallel.Mesh().Size()) {
			ends = append(ends, end)
		}
	}
	sc := sharded.Config{Mesh: cfg.Parallel.Mesh(), Models: deps.Models,
		Reduce: cfg.Parallel.Reduce == parallel.Sum, Zero: cfg.Parallel.Zero, Sequence: cfg.Parallel.Sequence,
		Whole: deps.Whole, Canary: deps.Canary,
		Track: func(rank int) trace.Track { return deps.Track(fmt.Sprintf("rank %d", rank)) }}
	m := &Mesh{mesh: sc.Mesh}
	ends, m.counts = countBytes(ends)
	if rejoins(p) {
		if sc.Recovery, err = deps.Recovery(); err != nil {
			for _, end := range ends {
				end.Close() //nolint:errcheck // the cause is err
			}
			return nil, err
		}
		run := ctx
		sc.Warn = deps.Warn
		sc.Rejoin = func(ctx context.Context) (parallel.Transport, error) {
			ctx, cancel := endingWith(ctx, run, 0)
			defer cancel()
			end, err := join(ctx, cfg, p, deps.Peers)
			if err != nil {
				return nil, err
			}
			return m.counts[0].count(end), nil
		}
	}
	if m.Models, err = sharded.New(ctx, deps.Device, deps.Shape, deps.Each, sc, ends, meshThreads(cfg, p)); err != nil {
		return nil, err
	}
	return m, nil
}

// CheckJoin returns a usage error if this process lacks what it needs to join the others. It
// connects to none.
func CheckJoin(cfg *configs.Config) error {
	p, err := Process(cfg)
	if err != nil || p.Size == 1 || p.MPI && withMPI {
		return err
	}
	_, err = joinSettings(cfg, p)
	return err
}

// joinSettings returns how this process joins the others over TCP.
func joinSettings(cfg *configs.Config, p parallel.Process) (tcp.Config, error) {
	token, err := client.ReadToken(cfg.Parallel.TokenFile)
	if err != nil {
		return tcp.Config{}, usage.Errorf("parallel.token_file: %w", err)
	}
	if token == "" {
		return tcp.Config{}, usage.Errorf(
			"parallel.token_file is not set, expected a file with a token of at least %d bytes that all processes "+
				"share", tcp.MinToken)
	}
	if p.Master == "" {
		return tcp.Config{}, usage.Errorf(
			"MASTER_ADDR and MASTER_PORT are not set, expected the address at which rank 0 of %d listens", p.Size)
	}
	c := tcp.Config{Rank: p.Rank, Size: p.Size, Master: p.Master, Token: []byte(token), Run: runName(cfg),
		Numerics: cfg.Identity().String()}
	return c, usage.Wrap(c.Validate())
}

// joinTCP connects the processes of a run over TCP.
func joinTCP(ctx context.Context, cfg *configs.Config, p parallel.Process, peers Peers) (parallel.Transport, error) {
	c, err := joinSettings(cfg, p)
	if err != nil {
		return nil, err
	}
	c.Silence, c.Warn, c.Listens = peers.Silence, peers.Note, peers.listens
	peers.Note("rank %d of %d joins at %s", p.Rank, p.Size, p.Master)
	return tcp.Open(ctx, c)
}

// UsageUnlessRank returns err as a usage error, unless it says that a rank failed.
func UsageUnlessRank(err error) error {
	if errors.As(err, new(*parallel.RankError)) {
		return err
	}
	return usage.Wrap(err)
}

// runName identifies a run among others at the same address.
func runName(cfg *configs.Config) string {
	name := fmt.Sprintf("%s, %s", cfg.Parallel.Mesh(), cfg.Run.Dir)
	return name[:min(len(name), 128)]
}

// meshThreads returns the number of threads of each rank in the process p.
func meshThreads(cfg *configs.Config, p parallel.Process) int {
	training, _, _ := cores.Share(cfg)
	if p.Size == 1 { // all ranks are here
		return max(1, training/cfg.Parallel.Mesh().Size())
	}
	if cfg.Device.Threads > 0 {
		return cfg.Device.Threads
	}
	return max(1, min(training, runtime.GOMAXPROCS(0)/max(1, p.LocalSize)))
}

// MeshThreads returns the number of threads of each rank in this process.
func MeshThreads(cfg *configs.Config) int {
	p, _ := Process(cfg) // Follows reports the error
	return meshThreads(cfg, p)
}
