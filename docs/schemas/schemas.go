// Package schemas has the JSON schemas (draft 2020-12) of what daybook and nvj print
// with --json, for tests: they validate the output of real commands. Nothing of it
// is in a program.
package schemas

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:embed *.schema.json
var files embed.FS

// Commands lists the definitions of a program, daybook or nvj. Each command with --json
// has one, which is called as its path: "volume-inspect". Others are parts of these.
func Commands(program string) ([]string, error) {
	var schema struct {
		Defs map[string]any `json:"$defs"`
	}
	text, err := files.ReadFile(program + ".schema.json")
	if err == nil {
		err = json.Unmarshal(text, &schema)
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range schema.Defs {
		names = append(names, name)
	}
	return names, nil
}

// Validate checks what a command printed: one JSON value or several, each against the
// command's definition. It fails if there is none, and for a field that the definition
// does not name. The command is its path without the program: "volume inspect".
func Validate(program, command string, text []byte) error {
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	file, err := files.Open(program + ".schema.json")
	if err != nil {
		return err
	}
	defer file.Close()
	document, err := jsonschema.UnmarshalJSON(file)
	if err == nil {
		err = compiler.AddResource(program+".schema.json", document)
	}
	if err != nil {
		return err
	}
	schema, err := compiler.Compile(program + ".schema.json#/$defs/" + strings.ReplaceAll(command, " ", "-"))
	if err != nil {
		return fmt.Errorf("no schema for %s %s: %w", program, command, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	for n := 1; ; n++ {
		var value any
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) && n > 1 {
			return nil
		}
		if err == nil {
			err = schema.Validate(value)
		}
		if err != nil {
			return fmt.Errorf("value %d of %s %s: %w", n, program, command, err)
		}
	}
}
