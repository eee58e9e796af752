package main

import (
	"context"
	"io"
	"strings"
	"testing"
)

func TestServeRefusesInvalidOptions(t *testing.T) {
	for _, c := range []struct {
		words string
		code  int
		want  string
	}{
		{"serve dockers", exitUsage, "docker"},
		{"serve docker db1", exitUsage, "no arguments"},
		{"serve docker --size 1MiB", exitUsage, "at least"},
		{"serve docker --size many", exitUsage, "size"},
		{"serve docker --socket daybook.sock", exitUsage, "--socket wants an absolute path"},
		{"serve docker --target-dir mnt", exitUsage, "--target-dir wants an absolute path"},
	} {
		root := newRootCommand()
		root.SetArgs(strings.Fields(c.words))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		err := root.ExecuteContext(context.Background())
		if err == nil || exitCode(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("daybook %s: %v; want exit code %d and %q", c.words, err, c.code, c.want)
		}
	}
}
