package api

import (
	_ "embed" // for openapi.json
	"encoding/json"
)

//go:embed openapi.json
var openapi []byte

// Document returns openapi.json, the OpenAPI description of a server, with the server's version.
func Document(version string) (any, error) {
	var document map[string]json.RawMessage
	if err := json.Unmarshal(openapi, &document); err != nil {
		return nil, err
	}
	info, err := json.Marshal(map[string]string{"title": "easyrl serve", "version": version})
	document["info"] = info
	return document, err
}
