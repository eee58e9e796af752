// Package versioned reads and writes JSON records that carry the number of their
// format. A record with a higher number than the program knows was written by a
// newer Daybook: it is refused, and is not damaged. Within one format fields may
// be added: those that the program does not know are kept when it writes the
// record again.
package versioned

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// ErrNewer is wrapped by errors about what a newer Daybook has written.
var ErrNewer = errors.New("written by a newer Daybook: upgrade")

// CheckFormat looks at the number under key alone, of an object that may have
// any other fields. The error wraps ErrNewer if it is higher than known; what
// else may be wrong with the text is for the caller to find.
func CheckFormat(text []byte, key string, known int) error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil {
		return nil
	}
	var format int64
	if json.Unmarshal(fields[key], &format) != nil || format <= int64(known) {
		return nil
	}
	return fmt.Errorf("%w (format %d, this one knows %d)", ErrNewer, format, known)
}

// DecodeStrict reads one JSON value. The error wraps ErrNewer if it has fields
// that the value does not know, where fields are added by newer versions alone.
func DecodeStrict(text []byte, value any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	strict := decoder.Decode(value)
	if strict == nil {
		if _, err := decoder.Token(); err != io.EOF {
			return errors.New("something follows the object")
		}
		return nil
	}
	// Slower, and only once: what is wrong with it?
	unknown, err := Decode(text, value)
	if err != nil {
		return err
	}
	for name := range unknown {
		return fmt.Errorf("%w (it has the unknown field %.40q)", ErrNewer, name)
	}
	// Within a list, which Decode does not look into.
	return fmt.Errorf("%w (%.80s)", ErrNewer, strings.TrimPrefix(strict.Error(), "json: "))
}

// Unknown are fields that a program does not know: each a [json.RawMessage], or
// the Unknown of a field that it knows. None is nil.
type Unknown map[string]any

// Decode reads one JSON object into a struct, and returns its unknown fields.
func Decode(text []byte, value any) (Unknown, error) {
	if err := json.Unmarshal(text, value); err != nil {
		return nil, err
	}
	return unknownOf(reflect.TypeOf(value), text), nil
}

// unknownOf finds the fields of an object that a type has not.
func unknownOf(t reflect.Type, text json.RawMessage) Unknown {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var fields map[string]json.RawMessage
	if t.Kind() != reflect.Struct || json.Unmarshal(text, &fields) != nil {
		return nil
	}
	var unknown Unknown
	add := func(name string, value any) {
		if unknown == nil {
			unknown = Unknown{}
		}
		unknown[name] = value
	}
	for name, value := range fields {
		canonical, field := fieldOf(t, name)
		if field == nil {
			add(name, value)
		} else if below := unknownOf(field, value); below != nil {
			add(canonical, below)
		}
	}
	return unknown
}

// fieldOf gives the type of the field that encoding/json decodes a name into,
// nil if there is none, and the name that it has when it is encoded.
func fieldOf(t reflect.Type, name string) (canonical string, field reflect.Type) {
	for _, f := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || tag == "-" || f.Anonymous {
			continue
		}
		if tag == "" {
			tag = f.Name
		}
		if strings.EqualFold(tag, name) {
			return tag, f.Type
		}
	}
	return "", nil
}

// Encode writes a struct as indented JSON, with the unknown fields that it had
// when it was read. Those of a field that is no longer there are dropped.
func Encode(value any, unknown Unknown) ([]byte, error) {
	text, err := json.Marshal(value)
	if err == nil {
		text, err = merge(text, unknown)
	}
	if err != nil {
		return nil, err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", "  "); err != nil {
		return nil, err
	}
	return indented.Bytes(), nil
}

func merge(text json.RawMessage, unknown Unknown) (json.RawMessage, error) {
	if len(unknown) == 0 {
		return text, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil || fields == nil {
		return text, err
	}
	for name, value := range unknown {
		have, there := fields[name]
		switch value := value.(type) {
		case json.RawMessage:
			if !there {
				fields[name] = value
			}
		case Unknown:
			if !there {
				continue
			}
			merged, err := merge(have, value)
			if err != nil {
				return nil, err
			}
			fields[name] = merged
		}
	}
	return json.Marshal(fields)
}
