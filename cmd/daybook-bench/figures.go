package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/atomicfile"
)

// encode returns figures as JSON.
func encode(value any) ([]byte, error) {
	text, err := json.MarshalIndent(value, "", "  ")
	return append(text, '\n'), err
}

// read reads a result from a file.
func read(path string, result any) error {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, result)
	}
	if err != nil {
		return fmt.Errorf("cannot read the earlier figures: %w", err)
	}
	return nil
}

// before reads the earlier result, for the parts that are not measured this time. A
// missing file is an error only if the page is written, because the page shows all
// parts.
func (b *bench) before(result any) error {
	err := b.readMade(b.output, result)
	if !errors.Is(err, fs.ErrNotExist) {
		b.chosen = "" // flags that choose a part of the page do not make it
		return err
	}
	if b.docs != "" {
		return fmt.Errorf("%s would lose the parts that are not measured now, because earlier figures are missing: %w; measure all parts, or omit --docs",
			b.page()+".md", err)
	}
	return nil
}

// readKept reads a result of which only the page is written.
func (b *bench) readKept(path string, result any) error {
	b.kept = true
	return b.readMade(path, result)
}

// readMade reads a result, and the command that measured it.
func (b *bench) readMade(path string, result any) error {
	var made struct{ Command string }
	if err := read(path, result); err != nil {
		return err
	}
	if err := read(path, &made); err != nil {
		return err
	}
	b.command = cmp.Or(made.Command, b.command)
	return nil
}

// save keeps a result, and the command that measures it again.
func (b *bench) save(result any) error {
	return keep("the figures", b.output, measured{b.made(), result})
}

// measured is a result whose JSON begins with the command.
type measured struct {
	command string
	result  any
}

func (m measured) MarshalJSON() ([]byte, error) {
	command, err := json.Marshal(m.command)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(m.result)
	members, isObject := bytes.CutPrefix(text, []byte("{"))
	if err != nil || !isObject {
		return text, err
	}
	comma := []byte(",")
	if bytes.Equal(members, []byte("}")) {
		comma = nil
	}
	return slices.Concat([]byte(`{"command":`), command, comma, members), nil
}

// keep writes a value as JSON.
func keep(what, path string, value any) error {
	text, err := encode(value)
	if err == nil {
		err = replace(path, text)
	}
	if err != nil {
		return fmt.Errorf("cannot keep %s: %w", what, err)
	}
	return nil
}

// replace makes text the content of a file so that it is never there in part.
func replace(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if !replaceable(path) {
		return os.WriteFile(path, text, 0o644)
	}
	return atomicfile.ReplaceReadable(path, text)
}

// replaceable reports whether another file may take the place of what is at path: not of a device such
// as /dev/null, nor of a symbolic link.
func replaceable(path string) bool {
	info, err := os.Lstat(path)
	return err != nil || info.Mode().IsRegular()
}

// tryReplacing returns an error if a file cannot be replaced. The file itself stays as it is.
func tryReplacing(path string) error {
	directory := filepath.Dir(path)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("cannot write %s: it is a directory", path)
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	if !replaceable(path) {
		return nil
	}
	trial, err := os.CreateTemp(directory, ".daybook-bench-")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return errors.Join(trial.Close(), os.Remove(trial.Name()))
}

// setAside keeps figures that would be overwritten, also those that it kept before: they took hours.
func (b *bench) setAside(cmd *cobra.Command) error {
	old := b.output + ".old"
	for n := 2; hasFile(old); n++ {
		old = fmt.Sprintf("%s.old%d", b.output, n)
	}
	err := os.Rename(b.output, old)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		b.say(cmd, "the figures before are in "+old)
	}
	return err
}

func hasFile(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func write(path string, content []byte) error {
	if err := replace(path, content); err != nil {
		return fmt.Errorf("cannot write the figures: %w", err)
	}
	return nil
}
