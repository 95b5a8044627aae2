package tcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/easyrl/easyrl/internal/peer"
	"github.com/easyrl/easyrl/parallel"
)

const (
	maxHandshakes = 256                    // incomplete handshakes at the same time
	maxChannels   = 64                     // connections from one sender
	retry         = 200 * time.Millisecond // between attempts to listen, connect or accept
	busy          = 5 * time.Second        // how long rank 0 tries to listen at an address that is in use
)

// Open joins a world and returns when all ranks have joined. The world lives until Close, also after the
// end of ctx.
func Open(ctx context.Context, cfg Config) (*World, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("join world: %w", err)
	}
	cfg = cfg.withDefaults()
	w := newWorld(cfg)
	if cfg.Size == 1 {
		return w, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Join, fmt.Errorf("world is not complete after %v", cfg.Join))
	defer cancel()
	late := time.AfterFunc(cfg.patience, func() {
		cfg.Warn("rank %d of %d still waits for %s", cfg.Rank, cfg.Size, w.awaited())
	})
	defer late.Stop()
	start := w.join
	if cfg.Rank == 0 {
		start = w.host
	}
	err := start(ctx)
	if err == nil {
		err = w.assemble(ctx)
	}
	w.refused.flush()
	if err != nil {
		err = errors.Join(err, w.Close())
		return nil, fmt.Errorf("join world at %s as rank %d of %d: %w", cfg.Master, cfg.Rank, cfg.Size, err)
	}
	return w, nil
}

// host makes rank 0 listen at the master address, or at all addresses of this machine if the master
// address is not one of them.
func (w *World) host(ctx context.Context) error {
	name, port, _ := net.SplitHostPort(w.cfg.Master) // Config.Validate has checked it
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return err
	}
	slices.SortStableFunc(ips, func(a, b netip.Addr) int { // IPv4 first
		return cmp.Compare(a.Unmap().BitLen(), b.Unmap().BitLen())
	})
	for _, ip := range ips {
		l, err := listen(ctx, net.JoinHostPort(ip.String(), port))
		if err == nil {
			w.accept(l)
			return nil
		}
		if !errors.Is(err, syscall.EADDRNOTAVAIL) {
			return err
		}
	}
	// The name may belong to a service that forwards to this machine.
	l, err := listen(ctx, ":"+port)
	if err != nil {
		return err
	}
	w.cfg.Warn("%s is not an address of this machine, so rank 0 listens at port %s of all its addresses; "+
		"to listen at one of them alone, make it the master address", name, port)
	w.accept(l)
	return nil
}

// listen listens at an address. If it is in use, listen tries again until busy is over: when the world before has just
// closed its listener, a process that is being started may hold a copy of it until it executes its program.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	var config net.ListenConfig
	for began := time.Now(); ; {
		l, err := config.Listen(ctx, "tcp", addr)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Since(began) > busy {
			return l, err
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// join makes a rank other than 0 listen and connect to rank 0. It tries until ctx ends, rank 0 refuses, or
// Config.Listens is over.
func (w *World) join(ctx context.Context) error {
	if limit := w.cfg.Listens; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("rank 0 has not listened within %v", limit))
		defer cancel()
	}
	began := time.Now()
	for {
		c, err := w.connectRank0(ctx)
		if err == nil {
			l := newLink(w, 0, w.cfg.Master, c)
			w.mu.Lock()
			w.links[0] = l
			w.mu.Unlock()
			w.tasks.Go(l.serve)
			return nil
		}
		var r refusal
		// This process may replace one that has died, which rank 0 finds out within Config.Silence.
		wait := errors.As(err, &r) && r.cause == taken && time.Since(began) < w.cfg.Silence+5*retry
		if errors.As(err, &r) && !wait {
			return fmt.Errorf("rank 0: %w", err)
		}
		select {
		case <-time.After(retry): // rank 0 may start later
		case <-ctx.Done():
			cause := context.Cause(ctx)
			if errors.Is(err, context.Canceled) { // ctx ended the attempt
				return cause
			}
			return fmt.Errorf("%w: %w", cause, peer.Fault(err))
		}
	}
}

// connectRank0 makes the control connection to rank 0 and, in its first call, the listener.
func (w *World) connectRank0(ctx context.Context) (*conn, error) {
	raw, err := w.cfg.dial(ctx, w.cfg.Master)
	if err != nil {
		return nil, err
	}
	c := newConn(raw)
	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // ends the handshake
	if w.listener == nil {
		err = w.listenNear(ctx, c.LocalAddr())
	}
	if err == nil {
		h := hello{Rank: w.cfg.Rank, Size: w.cfg.Size, Run: w.cfg.Run, Numerics: w.cfg.Numerics,
			Addr: reachable(w.listener, c.LocalAddr()), Ticket: w.ticket}
		err = c.connectHandshake(w.cfg.Token, h, time.Now().Add(handshakeTime))
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = c.Close() // err is more useful than the error of Close
		return nil, err
	}
	return c, nil
}

// listenNear listens at Config.Listen or, if that is empty, at any port of the host of local, this rank's
// end of its connection to rank 0. Other ranks can probably reach that host, since rank 0 can.
func (w *World) listenNear(ctx context.Context, local net.Addr) error {
	addr := w.cfg.Listen
	if addr == "" {
		host, _, err := net.SplitHostPort(local.String())
		if err != nil {
			return err
		}
		addr = net.JoinHostPort(host, "0")
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return refusal{misfit, err.Error()}
	}
	w.accept(l)
	return nil
}

// reachable returns the address at which other ranks reach l. If l listens at all addresses, its host is
// that of local.
func reachable(l net.Listener, local net.Addr) string {
	host, port, _ := net.SplitHostPort(l.Addr().String()) // TCP addresses have both
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host, _, _ = net.SplitHostPort(local.String())
	}
	return net.JoinHostPort(host, port)
}

// assemble waits until all ranks have joined.
func (w *World) assemble(ctx context.Context) error {
	select {
	case <-w.ready:
		return nil
	case <-w.failed:
		if w.isReady() { // it has failed since, and its calls return the verdict
			return nil
		}
		return w.err
	case <-w.left[0]:
		return errors.New("rank 0 has left")
	case <-ctx.Done():
	}
	err := context.Cause(ctx)
	if w.cfg.Rank != 0 {
		return err
	}
	w.fail(0, fmt.Errorf("%w; ranks %v have not joined", err, w.missing()), false)
	return w.verdict()
}

// missing returns, on rank 0, the first ranks that have not joined, at most 10.
func (w *World) missing() (ranks []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for rank := 1; rank < w.cfg.Size && len(ranks) < 10; rank++ {
		if w.links[rank] == nil {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// awaited describes what a joining rank still waits for.
func (w *World) awaited() string {
	if w.cfg.Rank == 0 {
		return fmt.Sprintf("ranks %v to join", w.missing())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.links[0] == nil {
		return "rank 0 to listen at " + w.cfg.Master
	}
	return fmt.Sprintf("ranks other than 0 to join; rank 0 at %s knows which", w.cfg.Master)
}

// accept accepts connections until Close, and starts the check of silent streams.
func (w *World) accept(l net.Listener) {
	w.listener = l
	w.tasks.Go(w.checkStreams)
	w.tasks.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // a temporary failure, such as too many open files
				select {
				case <-time.After(retry):
					continue
				case <-w.life.Done():
					return
				}
			}
			if !w.track(c) {
				return
			}
			w.handshakes.add(c)
			w.tasks.Go(func() {
				if l := w.admit(c); l != nil {
					l.serve()
				}
			})
		}
	})
}

// admit does the handshake of an accepted connection. The connection becomes that of a stream, or of a
// link, which admit returns for the caller to serve. If it is refused, admit closes it.
func (w *World) admit(raw net.Conn) *link {
	var l *link
	var s *stream
	c := newConn(raw)
	err := c.acceptHandshake(w.cfg.Token, time.Now().Add(handshakeTime), func(h hello) (err error) {
		if !w.handshakes.remove(raw) {
			return errGaveWay
		}
		if err := w.cfg.check(h); err != nil {
			return err
		}
		if h.Channel != "" {
			s, err = w.attach(h, c)
			return err
		}
		l, err = w.register(h, c)
		return err
	})
	if err != nil {
		if !w.handshakes.remove(raw) && errors.Is(err, net.ErrClosed) {
			err = errGaveWay // handshakes.add has closed raw
		}
		w.drop(raw)
		if w.life.Err() == nil {
			w.refused.add(raw.RemoteAddr(), err)
		}
		if l != nil { // the connection broke after register
			l.lost(err)
		}
		return nil
	}
	if s != nil {
		close(s.connected)
	}
	if l != nil {
		w.startIfComplete()
	}
	return l
}

// check returns a refusal unless h comes from another rank of this world and is meant for this rank.
func (c *Config) check(h hello) error {
	switch {
	case h.Run != c.Run:
		return refusal{misfit, fmt.Sprintf("run is %q, expected %q", h.Run, c.Run)}
	case h.Numerics != c.Numerics:
		return refusal{misfit, fmt.Sprintf("rank %d computes in %q, expected %q, as rank %d", h.Rank, h.Numerics,
			c.Numerics, c.Rank)}
	case h.Size != c.Size:
		return refusal{misfit, fmt.Sprintf("world size is %d, expected %d", h.Size, c.Size)}
	case h.Rank < 0 || h.Rank >= h.Size || h.Rank == c.Rank:
		return refusal{misfit, fmt.Sprintf("rank is %d, expected one below %d and not %d", h.Rank, h.Size, c.Rank)}
	case h.To != c.Rank:
		return refusal{misfit, fmt.Sprintf("this is rank %d, expected %d", c.Rank, h.To)}
	case len(h.Channel) > parallel.MaxChannel:
		return refusal{misfit, fmt.Sprintf("channel has %d bytes, expected at most %d", len(h.Channel),
			parallel.MaxChannel)}
	}
	return nil
}

// register makes the link of a rank that joins, or returns a refusal. The link then owns c.
func (w *World) register(h hello, c *conn) (*link, error) {
	if _, _, err := net.SplitHostPort(h.Addr); err != nil || len(h.Addr) > maxAddr {
		return nil, refusal{misfit, fmt.Sprintf("address is %q, expected host:port", h.Addr)}
	}
	if w.cfg.Rank != 0 {
		return nil, refusal{misfit, fmt.Sprintf("this is rank %d, expected 0", w.cfg.Rank)}
	}
	if len(h.Ticket) != ticketLen {
		return nil, refusal{misfit, fmt.Sprintf("ticket has %d bytes, expected %d", len(h.Ticket), ticketLen)}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life.Err() != nil { // no refusal, because another world may follow at this address
		return nil, net.ErrClosed
	}
	if l := w.links[h.Rank]; l != nil {
		return nil, refusal{taken, fmt.Sprintf("rank %d has already joined, from %s", h.Rank, l.addr)}
	}
	l := newLink(w, h.Rank, h.Addr, c)
	w.links[h.Rank] = l
	w.addrs[h.Rank], w.tickets[h.Rank] = h.Addr, h.Ticket
	delete(w.conns, c.Conn) // endLife must not close it
	return l, nil
}

// startIfComplete sends all ranks the table of addresses once, when the last rank has joined.
func (w *World) startIfComplete() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.links) < w.cfg.Size-1 || w.isReady() {
		return
	}
	for _, l := range w.links {
		l.out <- note{Kind: table, Addrs: w.addrs, Tickets: w.tickets}
	}
	close(w.ready)
}
