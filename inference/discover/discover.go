// Package discover watches a file or a DNS name for the inference instances that
// a fleet should have.
package discover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/easyrl/easyrl/internal/filetype"
)

const (
	maxFile       = 1 << 20 // bytes
	lookupTimeout = 10 * time.Second
)

// Watch reads source at once and then every interval, and calls changed with all
// endpoints, sorted, when they change. It returns the cause of ctx when ctx ends.
// A source is a path or dns:NAME:PORT.
//
// A file has one endpoint per line; check must accept each. Empty lines and lines that start with #
// are skipped. A DNS name gives the endpoint http://ADDRESS:PORT for each of its IPv4 addresses. Only
// if it has none are its IPv6 addresses used, because a host with both is one instance.
//
// The first reading takes effect at once; a later change takes effect when two consecutive readings
// agree, so that a half-written file or an incomplete DNS answer removes no instance. If a reading
// fails, changed gets the error, but only once while the same message repeats, and the endpoints do
// not change. A DNS name without addresses is such an error; an empty file is a valid reading.
//
// Calls of changed do not overlap. changed owns the endpoints that it gets.
func Watch(ctx context.Context, source string, interval time.Duration, check func(endpoint string) error,
	changed func(endpoints []string, err error)) error {
	if interval <= 0 {
		return fmt.Errorf("watch %s: interval %v, expected more than 0", source, interval)
	}
	read, err := reader(source, check, net.DefaultResolver.LookupHost)
	if err != nil {
		return err
	}
	return watch(ctx, read, interval, changed)
}

// Check returns the error that Watch would return for source, without reading it.
func Check(source string) error {
	_, err := reader(source, nil, net.DefaultResolver.LookupHost)
	return err
}

type (
	readFunc   func(ctx context.Context) ([]string, error)
	lookupFunc func(ctx context.Context, host string) ([]string, error)
)

// watch is Watch for a source that read reads.
func watch(ctx context.Context, read readFunc, interval time.Duration, changed func([]string, error)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var reported []string // endpoints passed to changed; nil before the first reading
	var last []string     // endpoints of the last reading
	var fault string      // message of the last error, or empty after a reading without error
	for {
		endpoints, err := read(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			last = reported // a change seen once before the error must be seen twice again
			if err.Error() != fault {
				fault = err.Error()
				changed(nil, err)
			}
		default:
			fault = ""
			if reported == nil || (!slices.Equal(endpoints, reported) && slices.Equal(endpoints, last)) {
				reported = endpoints
				changed(slices.Clone(endpoints), nil)
			}
			last = endpoints
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// reader returns a function that reads source. Its result is sorted, without
// duplicates, and never nil.
func reader(source string, check func(endpoint string) error, lookup lookupFunc) (readFunc, error) {
	if source == "" {
		return nil, errors.New("watch: no source, expected a path or dns:NAME:PORT")
	}
	name, isDNS := strings.CutPrefix(source, "dns:")
	if !isDNS {
		return func(context.Context) ([]string, error) { return readFile(source, check) }, nil
	}
	host, port, err := net.SplitHostPort(name)
	if err != nil || host == "" {
		return nil, fmt.Errorf("watch %s: expected dns:NAME:PORT", source)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return nil, fmt.Errorf("watch %s: port %s, expected 1 to 65535", source, port)
	}
	return func(ctx context.Context) ([]string, error) {
		ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
		defer cancel()
		addresses, err := lookup(ctx, host)
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", source, err)
		}
		if len(addresses) == 0 {
			return nil, fmt.Errorf("watch %s: no addresses", source)
		}
		isV6 := func(a string) bool { return strings.Contains(a, ":") }
		if slices.ContainsFunc(addresses, func(a string) bool { return !isV6(a) }) {
			addresses = slices.DeleteFunc(slices.Clone(addresses), isV6)
		}
		endpoints := make([]string, len(addresses))
		for i, a := range addresses {
			endpoints[i] = "http://" + net.JoinHostPort(a, port)
		}
		return unique(endpoints), nil
	}, nil
}

// readFile returns the endpoints in a file, sorted and without duplicates.
func readFile(path string, check func(endpoint string) error) ([]string, error) {
	f, err := filetype.Open(path)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("watch %s: file has more than %d bytes, expected one endpoint per line", path, maxFile)
	}
	endpoints := []string{}
	for i, line := range bytes.Split(data, []byte("\n")) {
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' {
			continue
		}
		if err := check(text); err != nil {
			return nil, fmt.Errorf("watch %s:%d: %w", path, i+1, err)
		}
		endpoints = append(endpoints, text)
	}
	return unique(endpoints), nil
}

// unique sorts endpoints in place and returns them without duplicates.
func unique(endpoints []string) []string {
	slices.Sort(endpoints)
	return slices.Compact(endpoints)
}
