package sink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/easyrl/easyrl/internal/secret"
	"github.com/easyrl/easyrl/report"
)

// client speaks MLflow's REST API, version 2.0.
type client struct {
	base string
	http *http.Client
}

const (
	// experimentName is the MLflow experiment that contains all runs.
	experimentName = "easyrl"
	// requestTime is the timeout of one request.
	requestTime = 10 * time.Second
	// MLflow's limits.
	maxParams = 100  // settings in a request
	maxValue  = 6000 // bytes of a setting's value
	maxName   = 250  // bytes of a name
	// maxAnswer limits how much of a response is read, in bytes.
	maxAnswer = 1 << 20
)

func newClient(base string, transport http.RoundTripper) *client {
	return &client{base: strings.TrimRight(base, "/") + "/api/2.0/mlflow/",
		http: &http.Client{Timeout: requestTime, Transport: transport}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// refusal is a permanent error: retrying does not help.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// statusError is a response with a status other than 200.
type statusError struct {
	status  int    // HTTP status
	Code    string `json:"error_code"` // MLflow's code; empty if the response has none
	Message string `json:"message"`
}

func (a *statusError) Error() string {
	if a.Code == "" && a.status >= http.StatusInternalServerError {
		return fmt.Sprintf("status %d", a.status)
	} else if a.Code == "" {
		return fmt.Sprintf("status %d, expected an MLflow server", a.status)
	}
	message, _, _ := strings.Cut(a.Message, "\n")
	return fmt.Sprintf("%s: %.300s", a.Code, message)
}

// call posts input as JSON, or sends a GET if input is nil, and decodes the response into output unless
// that is nil. name is the path after "mlflow/". The error is a refusal unless another attempt may
// succeed.
func (c *client) call(ctx context.Context, name string, input, output any) error {
	method, body := http.MethodGet, io.Reader(nil)
	if input != nil {
		data, err := json.Marshal(input)
		if err != nil {
			return &refusal{fmt.Errorf("%s: %w", name, err)}
		}
		method, body = http.MethodPost, bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+name, body)
	if err != nil {
		return &refusal{err}
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	name, _, _ = strings.Cut(name, "?")
	if resp.StatusCode != http.StatusOK {
		fault := &statusError{status: resp.StatusCode}
		_ = json.Unmarshal(data, fault) // without MLflow's JSON, the status alone describes the error
		err = fmt.Errorf("%s: %w", name, fault)
		temporary := resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests ||
			resp.StatusCode == http.StatusRequestTimeout
		if !temporary {
			return &refusal{err}
		}
		return err
	}
	if output == nil {
		return nil
	}
	if err := json.Unmarshal(data, output); err != nil {
		return &refusal{fmt.Errorf("%s: %w", name, err)}
	}
	return nil
}

// experiment returns the ID of the experiment experimentName, and creates it if needed.
func (c *client) experiment(ctx context.Context) (string, error) {
	for made := false; ; made = true {
		var found struct {
			Experiment struct {
				ID string `json:"experiment_id"`
			} `json:"experiment"`
		}
		err := c.call(ctx, "experiments/get-by-name?experiment_name="+experimentName, nil, &found)
		if err == nil || made || !isCode(err, "RESOURCE_DOES_NOT_EXIST") {
			return found.Experiment.ID, err
		}
		err = c.call(ctx, "experiments/create", map[string]string{"name": experimentName}, nil)
		if err != nil && !isCode(err, "RESOURCE_ALREADY_EXISTS") { // ignore: another run created it first
			return "", err
		}
	}
}

// isCode reports whether err is a response with an MLflow error code.
func isCode(err error, code string) bool {
	var a *statusError
	return errors.As(err, &a) && a.Code == code
}

// create creates a run and returns its ID.
func (c *client) create(ctx context.Context, experiment, name string, start time.Time) (string, error) {
	var made struct {
		Run struct {
			Info struct {
				ID string `json:"run_id"`
			} `json:"info"`
		} `json:"run"`
	}
	in := map[string]any{"experiment_id": experiment, "run_name": name, "start_time": start.UnixMilli()}
	err := c.call(ctx, "runs/create", in, &made)
	if err == nil && made.Run.Info.ID == "" {
		err = &refusal{errors.New("runs/create: no run id, expected an MLflow server's response")}
	}
	return made.Run.Info.ID, err
}

// update sets a run's status and, unless end is zero, its end time.
func (c *client) update(ctx context.Context, run, status string, end time.Time) error {
	in := map[string]any{"run_id": run, "status": status}
	if !end.IsZero() {
		in["end_time"] = end.UnixMilli()
	}
	return c.call(ctx, "runs/update", in, nil)
}

// metric is one value of one step.
type metric struct {
	Key       string  `json:"key"`
	Value     float64 `json:"value"`
	Timestamp int64   `json:"timestamp"` // milliseconds since 1970
	Step      int     `json:"step"`
}

// param is one setting.
type param struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// logBatch adds items to a run. kind is "metrics" or "params". The request omits the other key, because
// MLflow fails if its value is null.
func (c *client) logBatch(ctx context.Context, run, kind string, items any) error {
	return c.call(ctx, "runs/log-batch", map[string]any{"run_id": run, kind: items}, nil)
}

// logParams sends a run's settings with secrets hidden and long values truncated.
func (c *client) logParams(ctx context.Context, run string, settings map[string]string) error {
	var all []param
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		hide := secret.Hide
		if strings.HasSuffix(key, ".command") {
			hide = secret.Arguments
		}
		value := hide(settings[key])
		all = append(all, param{mlflowName(key), strings.ToValidUTF8(value[:min(len(value), maxValue)], "")})
	}
	for batch := range slices.Chunk(all, maxParams) {
		if err := c.logBatch(ctx, run, "params", batch); err != nil {
			return err
		}
	}
	return nil
}

// metricsOf converts the finite values of a step, except "step" and "time".
func metricsOf(values report.Values) []metric {
	var all []metric
	for _, name := range values.Names() {
		if x := values[name]; name != "step" && name != "time" && report.Finite(x) {
			all = append(all, metric{mlflowName(name), x, int64(values["time"] * 1000), int(values["step"])})
		}
	}
	return all
}

// mlflowName turns name into a clean relative path of at most maxName bytes in MLflow's alphabet:
// letters, digits, _-.:/ and space. "@" becomes "_at_", as in other trainers, and any other character
// becomes "_".
func mlflowName(name string) string {
	name = strings.ReplaceAll(name, "@", "_at_")
	name = regexp.MustCompile(`[^0-9A-Za-z_.:/ -]`).ReplaceAllString(name, "_")
	name = strings.TrimLeft(path.Clean("/"+name), "/")
	if name == "" {
		return "_"
	}
	return name[:min(len(name), maxName)]
}
