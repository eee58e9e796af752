// Package configfile reads YAML configurations strictly: unknown keys, values of the wrong
// kind and several documents are refused, each with its line, and all that is wrong is
// reported at once.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxBytes is the largest configuration that is read.
const MaxBytes = 1 << 20

// Error is all that is wrong with a configuration, in the order of the lines.
type Error struct {
	// Name is the file's.
	Name     string
	Problems []Problem
}

// Problem is one thing that is wrong with a configuration, or worth knowing.
type Problem struct {
	// Line counts from 1; 0 is the file as a whole.
	Line int
	Text string
}

// String is the text, after the line if there is one.
func (p Problem) String() string {
	if p.Line == 0 {
		return p.Text
	}
	return fmt.Sprintf("line %d: %s", p.Line, p.Text)
}

func (e *Error) Error() string {
	texts := make([]string, len(e.Problems))
	for n, p := range e.Problems {
		texts[n] = p.String()
	}
	return "configuration " + e.Name + ": " + strings.Join(texts, "; ")
}

// ReadAll reads a configuration of at most MaxBytes. name is for messages.
func ReadAll(input io.Reader, name string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(input, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read configuration %s: %w", name, err)
	}
	if len(text) > MaxBytes {
		return nil, &Error{Name: name, Problems: []Problem{{Text: fmt.Sprintf("larger than %d bytes", MaxBytes)}}}
	}
	return text, nil
}

// Reader collects what is wrong with a configuration while its values are read.
type Reader struct{ Problems []Problem }

// Refuse adds a problem.
func (r *Reader) Refuse(line int, format string, values ...any) {
	r.Problems = append(r.Problems, Problem{Line: line, Text: fmt.Sprintf(format, values...)})
}

// Sort orders the problems by their lines.
func (r *Reader) Sort() {
	slices.SortStableFunc(r.Problems, func(a, b Problem) int { return a.Line - b.Line })
}

// Decode reads a text into a document, a pointer to a struct of yaml.Nodes. known lists
// the keys, and example is one with its value, for messages. It is false if the text is no
// YAML, so that nothing else can be read.
func (r *Reader) Decode(text []byte, document any, known, example string) bool {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	switch err := decoder.Decode(document); {
	case errors.Is(err, io.EOF):
	case err != nil:
		var mistyped *yaml.TypeError
		r.Problems = append(r.Problems, problemsOf(err, known, example)...)
		return errors.As(err, &mistyped)
	default:
		if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
			r.Refuse(0, "more than one document: want one, without ---")
		}
	}
	return true
}

// DecodeNode decodes a section of a document, whose keys are those of the struct's yaml
// tags; known lists them for messages.
func (r *Reader) DecodeNode(node yaml.Node, section any, known string) bool {
	text, err := yaml.Marshal(copies{}.of(&node))
	if err == nil {
		decoder := yaml.NewDecoder(bytes.NewReader(text))
		decoder.KnownFields(true)
		err = decoder.Decode(section)
	}
	// The text has lost its lines: only the kind of the problem counts here.
	for _, problem := range problemsOf(orTypeError(err), known, known) {
		problem.Line = node.Line
		r.Problems = append(r.Problems, problem)
	}
	if err != nil {
		return false
	}
	if err := node.Decode(section); err != nil { // once more, with the lines
		r.Refuse(node.Line, "%v", err)
		return false
	}
	return true
}

// copies makes a node a document of its own. It has the names of copied nodes with anchors.
type copies map[*yaml.Node]string

// of copies a node. In place of the first alias of an anchor elsewhere in the document is what it
// stands for. Wherever a node with an anchor comes again, as an alias or inside of what another one
// stands for, is an alias: with many copies, a small document could fill the memory.
func (c copies) of(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode && node.Alias != nil {
		node = node.Alias
	}
	if name, copied := c[node]; copied {
		return &yaml.Node{Kind: yaml.AliasNode, Value: name}
	}
	own := *node
	if node.Anchor != "" {
		// A document may use a name for several anchors, one after the other.
		own.Anchor = "anchor" + strconv.Itoa(len(c))
		c[node] = own.Anchor
	}
	own.Content = make([]*yaml.Node, len(node.Content))
	for n, part := range node.Content {
		own.Content[n] = c.of(part)
	}
	return &own
}

// orTypeError is err, or one without problems.
func orTypeError(err error) error {
	if err == nil {
		return &yaml.TypeError{}
	}
	return err
}

// problemsOf says it in the words of the file's writer, not of Go types.
func problemsOf(err error, known, example string) []Problem {
	texts := []string{strings.TrimPrefix(err.Error(), "yaml: ")}
	var mistyped *yaml.TypeError
	if errors.As(err, &mistyped) {
		texts = nil
		for _, e := range mistyped.Errors {
			texts = append(texts, fmt.Sprint(e))
		}
	}
	var problems []Problem
	for _, text := range texts {
		if field, _, unknown := strings.Cut(text, " not found in type "); unknown {
			text = strings.Replace(field, ": field ", ": unknown key ", 1) + " (known: " + known + ")"
		}
		if at, what, mistyped := strings.Cut(text, ": cannot unmarshal !!"); mistyped {
			kind, rest, _ := strings.Cut(what, " into ")
			kind, value, _ := strings.Cut(kind, " ")
			text = strings.TrimSpace(fmt.Sprintf("%s: did not expect %s here %s", at, kindName(kind), value))
			switch {
			case strings.HasSuffix(rest, ".document"):
				text += "; want keys such as " + example
			case strings.HasPrefix(rest, "[]"):
				text += "; want a list, each entry after a -"
			case kind != "map":
				text += "; want keys with values"
			}
		}
		if strings.Contains(text, "found character that cannot start any token") {
			text += " (a tab? YAML is indented by spaces)"
		}
		problems = append(problems, problemOf(strings.TrimSpace(text)))
	}
	return problems
}

// problemOf splits "line 3: text".
func problemOf(text string) Problem {
	if at, rest, found := strings.Cut(text, ": "); found {
		if digits, isLine := strings.CutPrefix(at, "line "); isLine {
			if line, err := strconv.Atoi(digits); err == nil {
				return Problem{Line: line, Text: rest}
			}
		}
	}
	return Problem{Text: text}
}

func kindName(tag string) string {
	switch tag {
	case "seq":
		return "a list"
	case "map":
		return "a mapping"
	default:
		return "the value"
	}
}

// KindOf names the kind of a value for messages.
func KindOf(node yaml.Node) string { return kindName(strings.TrimPrefix(node.ShortTag(), "!!")) }

// Resolve gives what an alias stands for, in the line of the alias.
func Resolve(node yaml.Node) yaml.Node {
	if node.Kind != yaml.AliasNode || node.Alias == nil {
		return node
	}
	line := node.Line
	node = *node.Alias
	node.Line = line
	return node
}

// Scalar gives the value of a key; "" if it is not there, or not a single value.
func (r *Reader) Scalar(node yaml.Node) (value string, line int) {
	node = Resolve(node)
	line = node.Line
	switch {
	case node.Kind == yaml.ScalarNode && node.Tag != "!!null":
		return node.Value, line
	case node.Kind == yaml.SequenceNode || node.Kind == yaml.MappingNode:
		r.Refuse(line, "did not expect %s here", KindOf(node))
	}
	return "", line
}

// Strings gives the values of a key that takes one or a list.
func (r *Reader) Strings(node yaml.Node) (values []string, line int) {
	node = Resolve(node)
	line = node.Line
	if node.Kind != yaml.SequenceNode {
		if value, _ := r.Scalar(node); value != "" {
			values = []string{value}
		}
		return values, line
	}
	for _, entry := range node.Content {
		if value, _ := r.Scalar(*entry); value != "" {
			values = append(values, value)
		}
	}
	return values, line
}

// Uint gives a whole number in a range; 0 if the key is not there.
func (r *Reader) Uint(node yaml.Node, what string, least, most uint64) uint64 {
	text, line := r.Scalar(node)
	if text == "" {
		return 0
	}
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil || number < least || number > most {
		r.Refuse(line, "%s: %q: want a whole number from %d to %d", what, text, least, most)
		return 0
	}
	return number
}
