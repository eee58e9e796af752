package vmtest

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// report passes a test binary's output on, without the lines that the host's own
// go test prints too, and finds the result of one test in it.
type report struct {
	test string // its full name
	to   io.Writer

	mu     sync.Mutex
	rest   []byte
	result string // PASS, FAIL, SKIP; "" while unknown
	ended  bool
}

func (r *report) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rest = append(r.rest, b...)
	for {
		at := bytes.IndexByte(r.rest, '\n')
		if at < 0 {
			return len(b), nil
		}
		r.line(string(r.rest[:at]))
		r.rest = r.rest[at+1:]
	}
}

// end passes the rest on and returns the result; later output is dropped.
func (r *report) end() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rest) > 0 {
		r.line(string(r.rest))
	}
	r.ended = true
	return r.result
}

// marker precedes the lines of package testing itself (test2json).
const marker = "\x16"

func (r *report) line(line string) {
	if r.ended {
		return
	}
	own, isOwn := strings.CutPrefix(line, marker)
	if !isOwn {
		if line != "PASS" && line != "FAIL" {
			_, _ = io.WriteString(r.to, line+"\n")
		}
		return
	}
	result, name := parseResult(own)
	switch {
	case result == "":
		// === RUN and the like
	case name == r.test:
		r.result = result
	case strings.HasPrefix(name, r.test+"/"):
		_, _ = io.WriteString(r.to, strings.TrimLeft(own, " ")+"\n")
	}
}

// parseResult reads "    --- PASS: TestX/y (0.01s)".
func parseResult(line string) (result, name string) {
	rest, found := strings.CutPrefix(strings.TrimLeft(line, " "), "--- ")
	if !found {
		return "", ""
	}
	result, rest, _ = strings.Cut(rest, ": ")
	name, _, _ = strings.Cut(rest, " (")
	return result, name
}
