package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/report/control"
)

func fleetVerb(std streams) verb {
	v := verb{
		name:     "fleet",
		synopsis: "list | add URL | drain ID | remove ID",
		summary:  "List, add, drain and remove the inference instances of a run, at its control address.",
		example: `easyrl fleet list -trainer http://127.0.0.1:7000
			easyrl fleet add http://10.0.0.7:8000 -kind vllm
			easyrl fleet drain http://10.0.0.7:8000`,
		flags: newFlags(),
	}
	trainer := v.flags.String("trainer", "http://127.0.0.1:7000", "`URL` of the run's control address, control.listen")
	kind := v.flags.String("kind", "", "`KIND` of the server to add: easyrl, vllm or sglang; by default it is found out")
	tokenFile := v.flags.String("token-file", "", "`FILE` with the control address's bearer token")
	asJSON := v.flags.Bool("json", false, "print the list as JSON")
	v.run = func(ctx context.Context, args []string) error {
		c, err := newFleetClient(*trainer, *tokenFile)
		if err != nil {
			return err
		}
		action, of := "", ""
		switch {
		case len(args) == 1 && args[0] == "list":
			return c.list(ctx, std.out, *asJSON)
		case len(args) == 2:
			action, of = args[0], args[1]
		}
		p := printer{std.out}
		switch action {
		case "add":
			return c.add(ctx, p, of, *kind)
		case "drain":
			return c.drain(ctx, p, of)
		case "remove":
			if err := c.call(ctx, http.MethodDelete, "/instances/"+url.PathEscape(of), nil, nil); err != nil {
				return err
			}
			p.line("%s left", of)
			return nil
		}
		return usagef("fleet: %q, expected list, add URL, drain ID or remove ID (see easyrl fleet -h)", strings.Join(args, " "))
	}
	return v
}

const (
	// fleetAnswer is the largest answer of a control address, in bytes.
	fleetAnswer = 64 << 20
	// fleetHeader is how long a control address has for what takes no time.
	fleetHeader = 30 * time.Second
	// drainLook is how often drain looks whether there is work left.
	drainLook = 200 * time.Millisecond
)

// fleetClient talks to a run's control address.
type fleetClient struct {
	root, token string
	http        *http.Client
}

func newFleetClient(trainer, tokenFile string) (*fleetClient, error) {
	u, err := url.Parse(trainer)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, usagef("fleet: -trainer is %q, expected a URL such as http://127.0.0.1:7000", trainer)
	}
	token, err := readToken("-token-file", tokenFile)
	if err != nil {
		return nil, err
	}
	return &fleetClient{root: strings.TrimRight(trainer, "/"), token: token, http: &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token is for this address
	}}, nil
}

// readToken reads the bearer token in a file, none where path is empty. key is
// what names the file.
func readToken(key, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", usagef("%s: %w", key, err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", usagef("%s: %s has no token, expected one line of letters and digits", key, path)
	}
	return token, nil
}

// call asks for method and path with in as its body, and reads the answer into
// out; both may be nil.
func (c *fleetClient) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.root+path, body)
	if err != nil {
		return usagef("fleet: %w", err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("fleet: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(resp.Body, fleetAnswer))
	if err != nil {
		return fmt.Errorf("fleet: %s %s: %w", method, c.root+path, err)
	}
	if resp.StatusCode/100 != 2 {
		return c.refused(method, path, resp.StatusCode, text)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("fleet: %s %s: %w", method, c.root+path, jsonFault(err, "the answer of a run's control address"))
	}
	return nil
}

// refused is the error of an answer that says no, in its own words where it has
// some.
func (c *fleetClient) refused(method, path string, status int, text []byte) error {
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(text, &body); err != nil || body.Error.Message == "" {
		return fmt.Errorf("fleet: %s %s: status %d, expected a run's control address", method, c.root+path, status)
	}
	err := fmt.Errorf("fleet: %s", body.Error.Message)
	if status == http.StatusBadRequest {
		return usageError{err}
	}
	return err
}

// members are the run's instances.
func (c *fleetClient) members(ctx context.Context) ([]control.Member, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fleetHeader, fmt.Errorf("fleet: %s/instances: no answer in %v", c.root, fleetHeader))
	defer cancel()
	var answer struct {
		Instances []control.Member `json:"instances"`
	}
	err := c.call(ctx, http.MethodGet, "/instances", nil, &answer)
	return answer.Instances, err
}

func (c *fleetClient) list(ctx context.Context, out io.Writer, asJSON bool) error {
	all, err := c.members(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(append([]control.Member{}, all...))
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	p := printer{w}
	p.line("ID\tKIND\tSTATE\tVERSION\tRUNNING\tCAPACITY\tSERVED\tFAILED\tTOKENS")
	for _, m := range all {
		p.line("%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d", m.ID, m.Kind, m.State, m.Version, m.Responses, m.Capacity, m.Served, m.Failed, m.Tokens)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, m := range all {
		if m.Fault != "" {
			printer{out}.line("%s: %s", m.ID, strings.ReplaceAll(m.Fault, "\n", "; "))
		}
	}
	return nil
}

// add returns when the server holds the run's weights.
func (c *fleetClient) add(ctx context.Context, p printer, url, kind string) error {
	var m control.Member
	if err := c.call(ctx, http.MethodPost, "/instances", map[string]string{"url": url, "kind": kind}, &m); err != nil {
		return err
	}
	if m.Fault != "" {
		return fmt.Errorf("fleet: %s joined, but it is %s: %s", m.ID, m.State, strings.ReplaceAll(m.Fault, "\n", "; "))
	}
	p.line("%s joined: %s, %s, version %d", m.ID, m.Kind, m.State, m.Version)
	return nil
}

// drain returns when the instance has no work left.
func (c *fleetClient) drain(ctx context.Context, p printer, id string) error {
	var m control.Member
	if err := c.call(ctx, http.MethodPost, "/instances/"+url.PathEscape(id)+"/drain", nil, &m); err != nil {
		return err
	}
	tick := time.NewTicker(drainLook)
	defer tick.Stop()
	for m.Requests > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("fleet: %s drains on, with %d requests left: %w", id, m.Requests, context.Cause(ctx))
		}
		all, err := c.members(ctx)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(all, func(o control.Member) bool { return o.ID == id })
		if at < 0 || all[at].State != inference.Draining.String() { // or came anew since
			p.line("%s left", id)
			return nil
		}
		m = all[at]
	}
	p.line("%s has no work left; easyrl fleet remove %s takes it out of the run", id, id)
	return nil
}
