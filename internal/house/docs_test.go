package house

import (
	"strings"
	"testing"
)

// firstSentences returns the first sentence of each package's doc.
func firstSentences() map[string]string {
	return map[string]string{
		"rollout": "Package rollout defines the data that flows from the producer to the trainer: prompts, " +
			"responses, groups and the policy version that sampled them.",
		"npu": "Package npu is the device layer: memory and the closed set of kernels that a " +
			"transformer needs.",
		"npu/cpu":  "Package cpu is the device everyone has: SIMD kernels with a fixed summation order.",
		"npu/host": "Package host works on weights in host memory: copies, checksums, panel layout.",
		"npu/device": "Package device opens a device, the CPU or that of an accelerator's kernel library, and " +
			"measures what its hardware can do.",
		"npu/nputest": "Package nputest holds the conformance suite that every device must pass.",
		"bench/roofline": "Package roofline measures each phase of training and sampling against the compute and " +
			"memory ceilings of the machine",
		"attention": "Package attention lays out token sequences that share prefixes, so that a prompt is " +
			"computed once for all its responses.",
		"parallel": "Package parallel maps ranks to the data, tensor and pipeline axes of a mesh and lets " +
			"them communicate.",
		"model":     "Package model is a decoder-only transformer with its backward pass written by hand.",
		"tri_model": "Package trimodel keeps policy, old policy and reference on one device.",
		"optim":     "Package optim updates weights: AdamW, gradient clipping, learning-rate schedules.",
		"loss": "Package loss turns token log-probabilities and rewards into a scalar and its gradient; " +
			"it knows no model and no device.",
		"inference": "Package inference defines the contract between inference instances and their callers: " +
			"requests, responses, weights and errors.",
		"inference/fleet": "Package fleet dispatches requests to inference instances that join, fail and leave, " +
			"and publishes each version of the weights to them.",
		"inference/engine": "Package engine samples from a model with continuous batching and a paged key-value cache.",
		"inference/server": "Package server exposes an engine over HTTP.",
		"inference/remote": "Package remote samples with inference servers over HTTP: easyrl serve, vLLM and SGLang.",
		"producer": "Package producer keeps the inference instances busy: it hands out prompts, scores what " +
			"comes back and queues finished groups.",
		"trainer": "Package trainer runs the training loop: accumulate a step's gradients, update, evaluate, " +
			"checkpoint.",
		"data":         "Package data reads prompts from JSONL",
		"reward":       "Package reward scores responses.",
		"reward/grade": "Package grade decides whether a response to a mathematical question gives the right answer.",
		"tokenizer": "Package tokenizer turns text into token ids and back, exactly as the model's " +
			"tokenizer.json specifies.",
		"tokenizer/chat": "Package chat renders conversations into prompts with a model's chat template.",
		"checkpoint": "Package checkpoint reads and writes safetensors weights and the state that makes a run " +
			"resumable.",
		"report": "Package report records a run's steps, warnings and description in the run's folder, and shows its " +
			"progress on the console.",
		"run/evaluate": "Package evaluate samples and scores responses to held-out prompts and turns their scores " +
			"into mean@k, pass@k and maj@k.",
		"run":          "Package run puts a run together from its configuration:",
		"run/dataset":  "Package dataset reads a run's prompts and demonstrations as token ids that its model takes.",
		"run/serve":    "Package serve runs an inference instance as a process:",
		"model/folder": "Package folder reads and writes model folders in Hugging Face's layout:",
		"configs": "Package configs holds the shipped *.toml and their shape as a Go struct; it is the only " +
			"reader of TOML.",

		"inference/fleet/state": "Package state decides which inference instance gets which request: a state " +
			"machine without goroutines, locks, clocks or I/O.",
	}
}

func TestPackageDocs(t *testing.T) {
	t.Parallel()
	docs := map[string]string{} // by package; empty without a doc
	for _, s := range parse(t).files {
		if s.test {
			continue
		}
		doc := strings.Join(strings.Fields(s.ast.Doc.Text()), " ")
		if docs[s.pkg] != "" && doc != "" {
			t.Errorf("%s: package %s already has a doc in another file", s.path, s.pkg)
		}
		docs[s.pkg] += doc
	}
	for pkg, doc := range docs {
		want, ok := firstSentences()[pkg]
		if !ok {
			want = "Package " + pkg[strings.LastIndexByte(pkg, '/')+1:] + " "
			if under(pkg, "cmd", "examples", "bench") {
				want = "Command " + pkg[strings.LastIndexByte(pkg, '/')+1:] + " "
			}
		}
		if !strings.HasPrefix(doc, want) {
			t.Errorf("package %s begins its doc with\n%.200q, expected\n%q", pkg, doc, want)
		}
	}
}
