package data

import (
	"encoding/json"
	"errors"
)

// errEnough ends the reading of a file early.
var errEnough = errors.New("enough records")

// Fields returns the names of the fields of the first records of a file, or of the files of
// a pattern: quoted, in order, and shortened if there are many. It returns "" if it can
// read no record.
func Fields(path string, opts Options) string {
	files, err := expand([]string{path})
	if err != nil {
		return ""
	}
	const enough = 100 // records
	found := map[string]json.RawMessage{}
	count := 0
	for _, f := range files {
		d := reader{label: f.label, opts: opts}
		d.records = records{path: f.path, explicit: []string{opts.PromptKey, opts.AnswerKey, opts.SourceKey},
			accepts: d.accepts, yield: func(r record) error {
				for name := range r.fields {
					found[name] = nil
				}
				if count++; count >= enough {
					return errEnough
				}
				return nil
			}}
		if d.records.open() != nil {
			break
		}
	}
	if len(found) == 0 {
		return ""
	}
	return keys(found)
}
