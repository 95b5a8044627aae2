package openai

// ErrorAnswer refuses a request.
type ErrorAnswer struct {
	Error  Error `json:"error"`
	Status int   `json:"status,omitempty"` // of an answer that has begun
}

// Error says why.
type Error struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"` // the faulty field
	Code    *string `json:"code"`
}

// HealthStatus answers that the server accepts requests.
type HealthStatus struct {
	Status string `json:"status"`
}

// EngineVersion is the version of the server.
type EngineVersion struct {
	Version string `json:"version"`
	Engine  string `json:"engine"`
}

// ServerLoad is the number of running and waiting requests.
type ServerLoad struct {
	Load int `json:"server_load"`
}

// Draining is the number of requests that a draining server still runs.
type Draining struct {
	Running int `json:"running"`
}

// ServerInfo describes the model, the weights and the limits of the server.
type ServerInfo struct {
	Engine        string `json:"engine"`
	Version       string `json:"version"`
	Model         string `json:"served_model_name"`
	Path          string `json:"model_path"`
	Context       int    `json:"max_model_len"`
	Vocab         int    `json:"vocab_size"`
	WeightVersion int64  `json:"weight_version"`
	Checksum      string `json:"weight_checksum"`
	WorldSize     int    `json:"world_size"`
	Cores         int    `json:"cores"`
	Capacity      int    `json:"capacity"`
	MaxConcurrent int    `json:"max_concurrent"`
	MaxQueue      int    `json:"max_queue"`
	MaxBody       int64  `json:"max_body"`
}

// WorldSize is the number of processes that share the model.
type WorldSize struct {
	Size int `json:"world_size"`
}

// ModelCard describes the model.
type ModelCard struct {
	ID      string  `json:"id"`
	Object  string  `json:"object"`
	Created int64   `json:"created"`
	Owner   string  `json:"owned_by"`
	Root    string  `json:"root"`
	Parent  *string `json:"parent"`
	Context int     `json:"max_model_len"`
}

// ModelList lists the model.
type ModelList struct {
	Object string      `json:"object"`
	Data   []ModelCard `json:"data"`
}

// TokenizeAnswer has the tokens of a text or a conversation.
type TokenizeAnswer struct {
	Count   int      `json:"count"`
	Context int      `json:"max_model_len"`
	IDs     []int32  `json:"tokens"`
	Pieces  []string `json:"token_strs,omitempty"`
}

// DetokenizeAnswer has the text of tokens.
type DetokenizeAnswer struct {
	Text string `json:"prompt"`
}

// WeightsHeld describes the current weights and the server that holds them.
type WeightsHeld struct {
	Version  int64  `json:"version"`
	Checksum string `json:"checksum"`
	Config   string `json:"config,omitempty"`
	Boot     string `json:"boot,omitempty"`
	Capacity int    `json:"capacity,omitempty"`
	Cores    int    `json:"cores,omitempty"`   // that sample
	Trainer  string `json:"trainer,omitempty"` // whose weights are accepted
	Layout   string `json:"layout,omitempty"`
	// Simulated means that nothing is computed with the weights.
	Simulated bool `json:"simulated,omitempty"`
}

// Empty is an object without fields.
type Empty struct{}
