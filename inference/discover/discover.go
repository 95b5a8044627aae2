// Package discover tells which inference instances a fleet should have, from a
// file or a DNS name that others keep up to date.
package discover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxFile       = 1 << 20
	lookupTimeout = 10 * time.Second
)

// Watch reads source at once and every interval until ctx ends, whose cause it
// returns, and calls changed with all endpoints, sorted, when they are others
// than before. A source is a path or dns:NAME:PORT.
//
// A file has an endpoint a line, in which check finds no fault; empty lines and
// those that begin with # are skipped. A name stands for http://ADDRESS:PORT
// of each of its IPv4 addresses or, where it has none, its IPv6 addresses: who
// has both is one instance.
//
// The first reading counts at once, a later change when two readings in a row
// agree on it, so that a file half written and an answer that lost an address
// take no instance away. Where a reading fails, changed gets the error, once for
// each message in a row, and the endpoints stay what they were. A source that
// names none is an error of that kind only for DNS: an empty file is an answer.
func Watch(ctx context.Context, source string, interval time.Duration, check func(endpoint string) error, changed func(endpoints []string, err error)) error {
	if interval <= 0 {
		return fmt.Errorf("watch %s: interval %v, expected more than 0", source, interval)
	}
	read, err := reader(source, check, net.DefaultResolver.LookupHost)
	if err != nil {
		return err
	}
	return watch(ctx, read, interval, changed)
}

// Check reports what is wrong with source as Watch would, without reading it.
func Check(source string) error {
	_, err := reader(source, nil, net.DefaultResolver.LookupHost)
	return err
}

type (
	readFunc   func(ctx context.Context) ([]string, error)
	lookupFunc func(ctx context.Context, host string) ([]string, error)
)

func watch(ctx context.Context, read readFunc, interval time.Duration, changed func([]string, error)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var told, last []string // told and read last; nil before the first reading
	var fault string
	for {
		now, err := read(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			last = told // what was half seen before a fault is seen anew
			if err.Error() != fault {
				fault = err.Error()
				changed(nil, err)
			}
		default:
			fault = ""
			if told == nil || (!slices.Equal(now, told) && slices.Equal(now, last)) {
				told = now
				changed(slices.Clone(now), nil)
			}
			last = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// reader is how source is read: sorted, each endpoint once, never nil.
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

func readFile(path string, check func(endpoint string) error) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("watch %s: more than %d bytes, expected an endpoint a line", path, maxFile)
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

func unique(endpoints []string) []string {
	slices.Sort(endpoints)
	return slices.Compact(endpoints)
}
