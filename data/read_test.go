package data

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/rollout"
)

var keyed = Options{PromptKey: "prompt", AnswerKey: "answer"}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func prompt(id, text, answer string) rollout.Prompt {
	return rollout.Prompt{ID: id, Text: text, Answer: json.RawMessage(answer), Source: "set"}
}

// read reads the files of one path.
func read(path string, opts Options) ([]rollout.Prompt, error) {
	all, err := ReadAll([]string{path}, opts)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

func TestRead(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, text string
		opts       Options
		want       []rollout.Prompt
	}{
		{"lines", `{"prompt":"a","answer":"1"}` + "\n" + `{"prompt":"b","answer":2.50}`, keyed,
			[]rollout.Prompt{prompt("set.jsonl:1", "a", `"1"`), prompt("set.jsonl:2", "b", `2.50`)}},
		{"empty lines, CRLF and byte order mark",
			"\ufeff\r\n{\"prompt\":\"a\",\"answer\":\"1\"}\r\n\r\n  {\"prompt\":\"b\",\"answer\":\"2\"}  \r\n", keyed,
			[]rollout.Prompt{prompt("set.jsonl:2", "a", `"1"`), prompt("set.jsonl:4", "b", `"2"`)}},
		{"array", "\n[\n {\"prompt\":\"a\",\n  \"answer\": [1,\n 2]},{\"prompt\":\"b\",\"answer\":true}\n]\n", keyed,
			[]rollout.Prompt{prompt("set.jsonl:1", "a", `[1,2]`), prompt("set.jsonl:2", "b", `true`)}},
		{"ids", `{"id":"x","prompt":"a","answer":""}` + "\n" + `{"id":17,"prompt":"b","answer":{}}` + "\n" +
			`{"id":null,"prompt":"c","answer":0}`, keyed,
			[]rollout.Prompt{prompt("x", "a", `""`), prompt("17", "b", `{}`), prompt("set.jsonl:3", "c", `0`)}},
		{"nested", `{"prompt":[{"role":"user","content":"a\n"}],"reward_model":{"ground_truth":"1"}}`,
			Options{PromptKey: "prompt.0.content", AnswerKey: "reward_model.ground_truth"},
			[]rollout.Prompt{prompt("set.jsonl:1", "a\n", `"1"`)}},
		{"dots in a name", `{"a.b":"p","a":{"b":"q"},"c":{"d.e":1,"d":{"e":2}}}`,
			Options{PromptKey: "a.b", AnswerKey: "c.d.e"},
			[]rollout.Prompt{prompt("set.jsonl:1", "p", `2`)}},
		{"no answers", `{"text":"a"}`, Options{PromptKey: "text"}, []rollout.Prompt{prompt("set.jsonl:1", "a", "")}},
		{"null answer", `{"prompt":"a","answer":null}`, keyed, []rollout.Prompt{prompt("set.jsonl:1", "a", "")}},
		{"empty prompt", `{"prompt":"","answer":""}`, keyed, []rollout.Prompt{prompt("set.jsonl:1", "", `""`)}},
		{"escapes", `{"prompt":"\u00e4\ud83d\ude00","answer":"\""}`, keyed,
			[]rollout.Prompt{prompt("set.jsonl:1", "ä😀", `"\""`)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := read(write(t, "set.jsonl", row.text), row.opts)
			require.NoError(t, err)
			for i := range row.want {
				if len(row.want[i].Answer) == 0 {
					row.want[i].Answer = nil
				}
			}
			require.Equal(t, row.want, got)
		})
	}
}

func TestReadErrors(t *testing.T) {
	t.Parallel()
	const good = `{"prompt":"a","answer":"1"}`
	for _, row := range []struct {
		name, text string
		opts       Options
		want       string // after "read prompts <path>"
	}{
		{"empty", "", keyed, ": no prompts, expected at least one JSON object"},
		{"white space", " \n\n", keyed, ": no prompts"},
		{"empty array", "[ ]", keyed, ": no prompts"},
		{"no key", good + "\n" + `{"question":"a","answer":"1","x":1}`, keyed,
			`:2: prompt: no key "prompt", found "answer", "question", "x"`},
		{"no answer", `{"prompt":"a"}`, keyed, `:1: answer: no key "answer", found "prompt"`},
		{"no keys at all", `{}`, keyed, `:1: prompt: no key "prompt", found none`},
		{"many keys", `{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"k":1,"l":1}`, keyed,
			`:1: prompt: no key "prompt", found "a", "b", "c", "d", "e", "f", "g", "h", "i", "j" and 2 more`},
		{"nested, missing", `{"a":{"c":1,"d":2}}`, Options{PromptKey: "a.b", AnswerKey: ""},
			`:1: prompt: no key "a.b": "a" is an object with "c", "d"`},
		{"nested, scalar", `{"a":{"b":3}}`, Options{PromptKey: "a.b.c", AnswerKey: ""},
			`:1: prompt: no key "a.b.c": "a.b" is a number`},
		{"nested, index", `{"a":["x"]}`, Options{PromptKey: "a.1", AnswerKey: ""},
			`:1: prompt: no key "a.1": "a" is an array of 1 elements`},
		{"nested, root", `{"a":1}`, Options{PromptKey: "b.c", AnswerKey: ""}, `:1: prompt: no key "b.c", found "a"`},
		{"prompt a list", `{"prompt":[{"content":"a"}],"answer":1}`, keyed,
			`:1: prompt: key "prompt": message 1: no role, found "content"`},
		{"prompt null", `{"prompt":null,"answer":1}`, keyed,
			`:1: prompt: key "prompt" is null, expected a string or a list of messages`},
		{"cut line", good + "\n\n" + `{"prompt":"a","ans`, keyed,
			`:3: not a JSON object: unexpected end of JSON input`},
		{"two objects on a line", good + good, keyed,
			`:1: not a JSON object: invalid character '{' after top-level value`},
		{"pretty printed, then more", "{\n \"prompt\":\"a\"\n}\n{}", keyed,
			`: found a JSON object over several lines, expected JSON lines, JSON or Parquet; write one object per ` +
				`line, as jq -c . does`},
		{"CSV", "prompt,answer\na,1\n", keyed,
			`: found CSV, expected JSON lines, JSON or Parquet; convert it to JSON lines`},
		{"gzip", "\x1f\x8b\x08\x00", keyed,
			`: found a file compressed with gzip, expected JSON lines, JSON or Parquet; decompress it with gunzip`},
		{"UTF-16", "\xff\xfe{\x00}\x00", keyed,
			`: found text in UTF-16, expected JSON lines, JSON or Parquet; convert it with iconv -f UTF-16 -t UTF-8`},
		{"web page", "\n<!DOCTYPE html>", keyed, `: found a web page, expected JSON lines, JSON or Parquet; it may ` +
			`be a login or an error page: download the file again`},
		{"Git LFS", "version https://git-lfs.github.com/spec/v1\noid", keyed,
			`: found a Git LFS pointer, expected JSON lines, JSON or Parquet; fetch the file itself`},
		{"YAML", "- prompt: a\n", keyed, `: found YAML, expected JSON lines, JSON or Parquet`},
		{"Python", "[{'prompt': 'a'}]", keyed,
			`: found Python values, expected JSON lines, JSON or Parquet; write them with json.dumps`},
		{"CSV after a record", good + "\na,b,c", keyed, `:2: not a JSON object: invalid character 'a'`},
		{"a number", "3", keyed, `:1: found a number, expected a JSON object`},
		{"null", "null", keyed, `:1: found null, expected a JSON object`},
		{"array of arrays", "[\n[1]]", keyed, `:2: found an array, expected a JSON object`},
		{"not UTF-8", "\n{\"prompt\":\"\xff\"}", keyed, `:2: not valid UTF-8`},
		{"array, fault within", "[" + good + ",\n\n{\"prompt\":\n]", keyed,
			`:4: not a JSON array: invalid character ']'`},
		{"array, no comma", "[" + good + "\n" + good + "]", keyed,
			`:2: not a JSON array: invalid character '{' after array element`},
		{"array, cut", "[" + good + ",\n" + good, keyed, `:2: not a JSON array: unexpected end of JSON input`},
		{"array, cut in an object", "[" + good + ",\n{\"prompt\"", keyed,
			`:2: not a JSON array: unexpected end of JSON input`},
		{"array, then more", "[" + good + "]\n\nmore", keyed,
			`:3: not a JSON array: invalid character 'm' after top-level value`},
		{"array, key", "[\n" + good + ",\n{\"answer\":1}]", keyed, `:3: prompt: no key "prompt"`},
		{"same id", `{"id":1,"prompt":"a","answer":1}` + "\n" + `{"id":"1","prompt":"b","answer":1}`, keyed,
			`:2: id "1" is already used on line 1`},
		{"id of a fraction", `{"id":1.5,"prompt":"a","answer":1}`, keyed, `:1: key "id" is 1.5, expected`},
		{"empty id", `{"id":"","prompt":"a","answer":1}`, keyed, `:1: key "id" is "", expected`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			path := write(t, "set.json", row.text)
			_, err := read(path, row.opts)
			require.ErrorContains(t, err, "read prompts "+path+row.want)
			require.NotContains(t, err.Error(), "\n")
		})
	}
	_, err := read(filepath.Join(t.TempDir(), "none.jsonl"), keyed)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = read(t.TempDir(), keyed)
	require.ErrorContains(t, err, "is a folder, expected a regular file")
	_, err = read(write(t, "set.json", "[]"), keyed)
	require.ErrorContains(t, err, "no prompts")
}

func TestReadRealFiles(t *testing.T) {
	t.Parallel()
	root := os.Getenv("EASYRL_TESTDATA")
	if root == "" {
		t.Skip("EASYRL_TESTDATA is not set")
	}
	for _, row := range []struct {
		path           string
		prompt, answer string
		atLeast        int
	}{
		{"gsm8k/test.jsonl", "question", "answer", 1319},
		{"math/test_math.json", "problem", "answer", 500},
		{"word_problems/svamp_test.jsonl", "Question", "Answer", 100},
		{"word_problems/mawps_addsub.jsonl", "input", "target", 100},
		{"digit_completion_train.jsonl", "prompt", "answer", 100},
		{"reasoning_gym_gallery.jsonl", "question", "answer", 303},
	} {
		t.Run(row.path, func(t *testing.T) {
			t.Parallel()
			got, err := read(filepath.Join(root, "prompts", row.path),
				Options{PromptKey: row.prompt, AnswerKey: row.answer})
			require.NoError(t, err)
			require.GreaterOrEqual(t, len(got), row.atLeast)
		})
	}
}

func TestDuplicates(t *testing.T) {
	t.Parallel()
	require.Zero(t, Duplicates(nil))
	require.Equal(t, 2, Duplicates([]rollout.Prompt{{Text: "a"}, {Text: "b"}, {Text: "a"}, {Text: "a"}}))
}

func TestDuplicatesOfMessages(t *testing.T) {
	t.Parallel()
	with := func(extra string) rollout.Prompt {
		return rollout.Prompt{Messages: []rollout.Message{{Role: "user", Content: "a",
			Extra: map[string]json.RawMessage{"x": json.RawMessage(extra)}}}}
	}
	require.Equal(t, 1,
		Duplicates([]rollout.Prompt{with("1"), with("2"), {Messages: user("a")}, with("1"), {Text: ""}}))
}

func TestHaving(t *testing.T) {
	t.Parallel()
	prompts := []rollout.Prompt{{ID: "a", IDs: []int32{3}}, {ID: "b", IDs: []int32{1, 2, 1}}, {ID: "c"},
		{ID: "d", IDs: []int32{0, 1}}}
	require.Equal(t, []string{"b", "d"}, Having(prompts, 1))
	require.Empty(t, Having(prompts, 4))
}

func TestOverLong(t *testing.T) {
	t.Parallel()
	prompts := []rollout.Prompt{{ID: "a", IDs: make([]int32, 3)}, {ID: "b", IDs: make([]int32, 4)}, {ID: "c"},
		{ID: "d", IDs: make([]int32, 9)}}
	kept, dropped := OverLong(prompts, 3)
	require.Equal(t, []string{"b", "d"}, dropped)
	require.Equal(t, []rollout.Prompt{prompts[0], prompts[2]}, kept)
	kept, dropped = OverLong(prompts, 0)
	require.Equal(t, prompts, kept)
	require.Empty(t, dropped)
}

// readBytes is read for in-memory content.
func readBytes(text []byte, opts Options) ([]rollout.Prompt, error) {
	d := reader{label: "set.jsonl", opts: opts, ids: identities{}}
	d.records = records{path: "dir/set.jsonl", explicit: []string{opts.PromptKey, opts.AnswerKey}, yield: d.prompt,
		accepts: d.accepts}
	err := d.records.json(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	return d.prompts, nil
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"", "[]", "{}", `{"prompt":"a","answer":1}`, "[{\"prompt\":\"a\",\n\"answer\":{}}]",
		"\ufeff\n{\"id\":3,\"prompt\":\"\",\"answer\":[]}",
		`{"prompt":"a","answer":1}` + "\r\n" + `{"prompt":"b","answer":null}`, "[{}", "[1", "{\"prompt\":\"\xff\"}",
		`[{"prompt":"a"},]`,
	} {
		f.Add([]byte(seed), "prompt", "answer")
	}
	f.Add([]byte(`{"a":{"b":["x"]}}`), "a.b.0", "a")
	for _, seed := range []string{
		`{"prompt":[{"role":"user","content":[{"type":"text","text":"a"}],"x":1}],` +
			`"reward_model":{"ground_truth":[1]},"data_source":"d"}`,
		`{"question":"a","answer":"x\n#### 1"}`, `{"problem":"a","solution":"\\boxed{{1}"}`,
		`{"examples":[{"input":"a","target":"b"}]}`,
		`{"messages":[{"from":"human","value":"q"},{"from":"gpt","value":"r"}]}`, `{"Body":"a","Question":"b"}`,
	} {
		f.Add([]byte(seed), "", "")
	}
	f.Fuzz(func(t *testing.T, text []byte, promptKey, answerKey string) {
		prompts, err := readBytes(text, Options{PromptKey: promptKey, AnswerKey: answerKey})
		examples := exampleReader{label: "set.jsonl", ids: identities{}}
		examples.records = records{path: "dir/set.jsonl", yield: examples.example, accepts: examples.accepts}
		if err := examples.records.json(bytes.NewReader(text)); err == nil && len(examples.examples) == 0 {
			t.Fatal("no examples and no error")
		}
		if err != nil {
			if prompts != nil || !strings.HasPrefix(err.Error(), "read prompts dir/set.jsonl:") {
				t.Fatalf("%d prompts with error %v", len(prompts), err)
			}
			return
		}
		ids := map[string]bool{}
		for _, p := range prompts {
			if p.ID == "" || ids[p.ID] || !utf8.ValidString(p.Text) {
				t.Fatalf("prompt %+v", p)
			}
			if p.Answer != nil && (answerKey == "" && promptKey != "" || !json.Valid(p.Answer) ||
				string(p.Answer) == "null") {
				t.Fatalf("answer %q", p.Answer)
			}
			ids[p.ID] = true
		}
		if len(prompts) == 0 {
			t.Fatal("no prompts and no error")
		}
	})
}
