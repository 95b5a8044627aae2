package client

import (
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/internal/filetype"
)

// Address parses the URL of a control address. Its error starts with "is", for a caller to put the name of
// the setting before it.
func Address(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err == nil && u.Port() != "" {
		_, err = strconv.ParseUint(u.Port(), 10, 16)
	}
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" ||
		u.Fragment != "" {
		return nil, fmt.Errorf("is %q, expected http://HOST:PORT of a trainer", text)
	}
	return u, nil
}

// maxToken limits the size of a token file, in bytes, because the token goes into a header.
const maxToken = 4 << 10

// ReadToken reads a bearer token from a regular file, or from one that is open in this process already,
// such as a shell's <(…). It returns "" if path is empty.
func ReadToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := filetype.OpenInput(path)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	switch {
	case len(b) > maxToken:
		return "", fmt.Errorf("%s has more than %d bytes, expected one line of letters and digits", path, maxToken)
	case token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("%s has no token, expected one line of letters and digits", path)
	}
	return token, nil
}
