package control

import (
	"encoding/json"

	"github.com/easyrl/easyrl/report"
)

// Warning tells those who listen of a warning, as event "warning". It does not
// block. Those who come later find it in the run's folder.
func (c *Server) Warning(w report.Warning) {
	if c == nil {
		return
	}
	body, err := json.Marshal(w)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("warning", warningText(w))
	c.tell("warning", body)
}
