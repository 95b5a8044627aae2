// Package findings describes a run that was checked: its settings and what it needs, as
// text for people and as JSON for programs.
package findings

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/plain"
	"github.com/easyrl/easyrl/run/cores"
	"github.com/easyrl/easyrl/run/memory"
)

// Findings are the results of a check. A part is nil if the check ended before it.
type Findings struct {
	Task     string            `json:"task"`   // train or sft
	Static   bool              `json:"static"` // only files were read
	OK       bool              `json:"ok"`
	Error    string            `json:"error,omitempty"`
	Warnings []string          `json:"warnings"`
	Config   map[string]any    `json:"config"` // every value, by section and key
	SetBy    map[string]string `json:"set_by"` // where each key was set
	Ranks    []Rank            `json:"ranks"`
	Threads  *Threads          `json:"threads,omitempty"`
	Folder   *Folder           `json:"folder,omitempty"`
	Model    *Model            `json:"model,omitempty"`
	Data     *Data             `json:"data,omitempty"`
	Memory   *Memory           `json:"memory,omitempty"`
	Device   *Device           `json:"device,omitempty"`
	Torch    *Torch            `json:"torch,omitempty"`
	Reward   *Reward           `json:"reward,omitempty"`
	Servers  []Server          `json:"servers,omitempty"`
}

// Threads is how a run divides its cores.
type Threads struct {
	Training  int `json:"training"`                        // threads of each rank that trains
	Idle      int `json:"training_while_sampling_is_idle"` // training threads while all instances are idle
	Sampling  int `json:"sampling"`                        // threads of each instance
	Instances int `json:"instances"`                       // embedded instances
	Ranks     int `json:"ranks,omitempty"`                 // ranks in this process; 0 if the run has one rank
}

// ThreadsOf returns how a run of one rank divides the cores of this machine.
func ThreadsOf(cfg *configs.Config, sft bool) *Threads {
	if sft {
		return &Threads{Training: cmp.Or(cfg.Device.Threads, runtime.GOMAXPROCS(0))}
	}
	n := cfg.Inference.Instances
	training, sampling, usesIdle := cores.Share(cfg)
	threads := &Threads{Training: training, Idle: training, Sampling: sampling, Instances: n}
	if usesIdle {
		threads.Idle += n * sampling
	}
	return threads
}

// Divide sets the number of ranks in this process and the threads of each. Ranks do not use the threads of idle
// instances.
func (t *Threads) Divide(each, ranks int) { t.Training, t.Idle, t.Ranks = each, each, ranks }

// Folder is the run's folder.
type Folder struct {
	Path string `json:"path"`
	From string `json:"from,omitempty"` // checkpoint to resume from
	Step int    `json:"step"`           // step of the checkpoint
	// Changed lists the settings that differ from those of the run so far.
	Changed []string `json:"changed,omitempty"`
}

// Model describes the model that the policy starts from.
type Model struct {
	Source     string `json:"source"` // its folder, or the config.json of random weights
	Type       string `json:"type"`
	Parameters int64  `json:"parameters"`
	Layers     int    `json:"layers"`
	Hidden     int    `json:"hidden_size"`
	Vocabulary int    `json:"vocabulary"`
	Context    int    `json:"context"`
	Template   bool   `json:"chat_template"`
	Random     bool   `json:"random"`
	Loaded     bool   `json:"loaded"` // the values of its weights were read
}

// Data is what the run trains and evaluates on.
type Data struct {
	Key     string `json:"key"`               // configuration key of the files
	Usable  int    `json:"usable"`            // usable prompts or demonstrations
	Dropped int    `json:"dropped,omitempty"` // unusable ones
	Eval    []Set  `json:"eval"`
}

// Set is a set that the run is evaluated on.
type Set struct {
	Name   string `json:"name"`
	Usable int    `json:"usable"`
}

// Add adds a set that the run is evaluated on.
func (d *Data) Add(name string, usable int) { d.Eval = append(d.Eval, Set{name, usable}) }

// Memory is the run's memory in bytes.
type Memory struct {
	memory.Need
	Certain int64         `json:"certain"` // memory.Need.Certain
	Most    int64         `json:"most"`    // memory.Need.Max
	Limit   *memory.Limit `json:"limit,omitempty"`
}

// Device is the trainer's device.
type Device struct {
	Name       string `json:"name"`
	Arithmetic string `json:"arithmetic"` // see npu.Info.Arithmetic
	Threads    int    `json:"threads"`
}

// Reward says whether the reward was tried.
type Reward struct {
	Tried bool `json:"tried"` // a program or service scored the first prompts' answers
}

// Server is an inference server of the configuration.
type Server struct {
	URL      string `json:"url"`
	Kind     string `json:"kind"`
	Capacity int    `json:"capacity,omitempty"`
	Error    string `json:"error,omitempty"` // why it cannot serve now
}

// Of returns the findings that need only the configuration.
func Of(resolved *configs.Resolved, task string, static bool) *Findings {
	return &Findings{Task: task, Static: static, Warnings: []string{}, Config: resolved.Tree(),
		SetBy: resolved.Origins(),
		Ranks: places(resolved.Parallel.Mesh())}
}

// WriteJSON writes the findings as one JSON document.
func (f *Findings) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(plain.JSONWriter{W: w})
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(f)
}

// WriteText writes the findings without the configuration, as comments of TOML.
func (f *Findings) WriteText(w io.Writer) error {
	var out strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&out, "# "+format+"\n", args...) }
	out.WriteByte('\n')
	f.writeRanks(line)
	if f.Threads != nil {
		line("threads: %s", f.Threads)
	}
	for _, s := range f.Servers {
		line("server: %s", &s)
	}
	if f.Folder != nil {
		line("folder: %s", f.Folder)
		for _, change := range f.Folder.Changed {
			line("changed setting: %s", change)
		}
	}
	if f.Model != nil {
		line("model: %s", f.Model)
	}
	if f.Data != nil {
		line("data: %s", f.Data)
	}
	if f.Memory != nil {
		f.Memory.write(line)
	}
	if f.Device != nil {
		line("device: %s (%s), %d threads", f.Device.Name, f.Device.Arithmetic, f.Device.Threads)
	}
	if f.Torch != nil {
		f.Torch.write(line)
	}
	if f.Reward != nil && f.Reward.Tried {
		line("reward: scored the answers of the first prompts")
	}
	switch {
	case f.OK && f.Static:
		line("ok: easyrl %s can read its files. Not checked: memory, device, reward, servers (-static)", f.Task)
	case f.OK:
		line("ok: easyrl %s can start", f.Task)
	}
	_, err := io.WriteString(w, plain.Text(out.String()))
	return err
}
