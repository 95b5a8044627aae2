// Command addition generates the quickstart's task: three-digit addition with
// worked carries, learned from flawed demonstrations.
//
//	go run ./examples/addition -out runs/quickstart/data
//
// It writes train.jsonl and test.jsonl (prompts and answers), demos.jsonl
// (demonstrations for supervised training) and model/ (a tokenizer and the shape
// of a small model). The same seed gives the same bytes.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("addition", flag.ContinueOnError)
	out := flags.String("out", "runs/quickstart/data", "output folder")
	seed := flags.Uint64("seed", 1, "random seed of the data")
	train := flags.Int("train", 4096, "training prompts")
	test := flags.Int("test", 512, "held-out prompts")
	demos := flags.Int("demos", 450*64, "demonstrations")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	trainSet, testSet, err := split(*seed, *train, *test)
	if err != nil {
		return err
	}
	model := filepath.Join(*out, "model")
	if err := os.MkdirAll(model, 0o755); err != nil {
		return err
	}
	return errors.Join(
		writeLines(filepath.Join(*out, "train.jsonl"), trainSet),
		writeLines(filepath.Join(*out, "test.jsonl"), testSet),
		writeLines(filepath.Join(*out, "demos.jsonl"), demonstrations(*seed, *demos)),
		writeJSON(filepath.Join(model, "tokenizer.json"), tokenizerFile()),
		writeJSON(filepath.Join(model, "tokenizer_config.json"), tokenizerConfig()),
		writeJSON(filepath.Join(model, "config.json"), modelConfig()),
	)
}

// writeLines writes rows as JSON lines without escaping angle brackets.
func writeLines[T any](path string, rows []T) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	buffer := bufio.NewWriter(file)
	lines := json.NewEncoder(buffer)
	lines.SetEscapeHTML(false)
	for _, row := range rows {
		if err := lines.Encode(row); err != nil {
			return err
		}
	}
	return buffer.Flush()
}

// writeJSON writes value as indented JSON without escaping angle brackets.
func writeJSON(path string, value any) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	encoder := json.NewEncoder(file)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
