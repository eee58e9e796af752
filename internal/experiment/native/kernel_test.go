package native

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The kernel's file is read while it grows.
func TestLinesOfACaseArePassedOnWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), outputFile)
	write := func(text string) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err == nil {
			_, err = file.WriteString(text)
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("")
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var lines []int
	out := output[int]{file: file, got: func(line int) { lines = append(lines, line) }}
	for _, c := range []struct {
		text string
		want []int
		last envelope[int]
	}{
		{"", nil, envelope[int]{}},
		{`{"value":1}`, nil, envelope[int]{}},
		{"\n{\"val", []int{1}, envelope[int]{}},
		{"ue\":0}\n{\"value\":3}\n", []int{1, 0, 3}, envelope[int]{}},
		{"{\"error\":\"no disk\"}\n", []int{1, 0, 3}, envelope[int]{Error: "no disk"}},
		{"{\"done\":true}\n", []int{1, 0, 3}, envelope[int]{Done: true}},
	} {
		write(c.text)
		if err := out.read(); err != nil || !slices.Equal(lines, c.want) || out.last.Error != c.last.Error || out.last.Done != c.last.Done {
			t.Errorf("after %q: %v, %+v, %v; want %v, %+v", c.text, lines, out.last, err, c.want, c.last)
		}
	}
	write("damaged\n")
	if err := out.read(); err == nil {
		t.Error("a damaged line is no error")
	}
}
