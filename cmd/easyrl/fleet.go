package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/internal/plain"
	"github.com/easyrl/easyrl/internal/secret"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/report/control"
	"github.com/easyrl/easyrl/report/control/client"
)

func fleetVerb(std streams) cli.Verb {
	v := cli.Verb{
		Name:     "fleet",
		Synopsis: "list | add URL | drain ID | remove ID",
		Summary:  "List, add, drain or remove a run's inference instances through its control address.",
		Example: `easyrl fleet list -trainer http://127.0.0.1:7000
			easyrl fleet add http://10.0.0.7:8000 -kind vllm
			easyrl fleet drain http://10.0.0.7:8000`,
		Flags: cli.NewFlags(),
	}
	trainer := v.Flags.String("trainer", "http://127.0.0.1:7000",
		"`URL` the run's control address (its control.listen)")
	kind := v.Flags.String("kind", "", "`KIND` kind of server to add: "+remote.Expected()+"; detected by default")
	tokenFile := v.Flags.String("token-file", "", "`FILE` file with the bearer token of the control address")
	asJSON := v.Flags.Bool("json", false, "print the list as JSON")
	v.Run = func(ctx context.Context, args []string) (err error) {
		defer func() {
			if errors.Is(err, client.ErrInvalid) {
				err = usage.Wrap(err)
			}
		}()
		if _, err := controlURL("fleet: -trainer", *trainer); err != nil {
			return err
		}
		token, err := readToken("-token-file", *tokenFile)
		if err != nil {
			return err
		}
		c := fleetClient{client.New(*trainer, token)}
		action, instance := "", ""
		switch {
		case len(args) == 1 && args[0] == "list":
			return c.list(ctx, std.out, *asJSON)
		case len(args) == 2:
			action, instance = args[0], args[1]
		}
		p := cli.Printer{W: std.out}
		switch action {
		case "add":
			return c.add(ctx, p, instance, *kind)
		case "drain":
			return c.drain(ctx, p, instance)
		case "remove":
			if err := c.Call(ctx, http.MethodDelete, "/instances/"+url.PathEscape(instance), nil, nil); err != nil {
				return err
			}
			p.Line("%s left", instance)
			return nil
		}
		const expected = "list, add URL, drain ID or remove ID (see easyrl fleet -h)"
		return usage.Errorf("fleet: arguments are %q, expected %s", strings.Join(args, " "), expected)
	}
	return v
}

// fleetClient calls a run's control address and prints the results.
type fleetClient struct{ *client.Client }

// readToken reads the bearer token in a file. It returns "" if path is empty. key names
// the flag in errors.
func readToken(key, path string) (string, error) {
	token, err := client.ReadToken(path)
	if err != nil {
		return "", usage.Errorf("%s: %w", key, err)
	}
	return token, nil
}

// list prints the instances as JSON, or as a table with their faults below, with secrets masked.
func (c fleetClient) list(ctx context.Context, out io.Writer, asJSON bool) error {
	all, err := c.Instances(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		all[i].Fault = secret.Hide(all[i].Fault)
	}
	if asJSON {
		e := json.NewEncoder(plain.JSONWriter{W: out})
		e.SetIndent("", "  ")
		return e.Encode(append([]control.Instance{}, all...))
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	p := cli.Printer{W: w}
	p.Line("ID\tKIND\tSTATE\tVERSION\tRUNNING\tCAPACITY\tSERVED\tFAILED\tTOKENS")
	for _, m := range all {
		p.Line("%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d", m.ID, m.Kind, m.State, m.Version,
			m.Responses, m.Capacity, m.Served, m.Failed, m.Tokens)
	}
	for _, m := range all {
		if m.Fault != "" {
			p.Line("%s: %s", m.ID, strings.ReplaceAll(m.Fault, "\n", "; "))
		}
	}
	return w.Flush()
}

// add adds a server to the run and returns once it holds the run's weights.
func (c fleetClient) add(ctx context.Context, p cli.Printer, server, kind string) error {
	var m control.Instance
	body := map[string]string{"url": server, "kind": kind}
	if err := c.Call(ctx, http.MethodPost, "/instances", body, &m); err != nil {
		return err
	}
	if m.Fault != "" {
		return fmt.Errorf("fleet: %s joined but is %s: %s", m.ID, m.State, strings.ReplaceAll(m.Fault, "\n", "; "))
	}
	p.Line("%s joined: %s, %s, version %d", m.ID, m.Kind, m.State, m.Version)
	return nil
}

// drain drains an instance and returns once it has no requests left.
func (c fleetClient) drain(ctx context.Context, p cli.Printer, id string) error {
	left, err := c.Drain(ctx, id)
	switch {
	case err != nil:
		return err
	case left:
		p.Line("%s left", id)
	default:
		p.Line("%s has no work left; remove it with: easyrl fleet remove %s", id, id)
	}
	return nil
}
