// Package versioned reads and writes JSON records that contain the number of
// their format. A record with a higher number than the program knows was written
// by a newer Daybook: it is rejected, and is not damaged. Within one format,
// fields may be added: unknown fields are kept when the program rewrites the
// record.
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

// ErrNewer is wrapped by errors about records of a newer Daybook.
var ErrNewer = errors.New("written by a newer Daybook: upgrade")

// CheckFormat checks only the number under key, of an object that may have any
// other fields. The error wraps ErrNewer if it is higher than known. Other
// errors in the text are for the caller to find.
func CheckFormat(text []byte, key string, known int) error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil {
		return nil
	}
	var format int64
	if json.Unmarshal(fields[key], &format) != nil || format <= int64(known) {
		return nil
	}
	return fmt.Errorf("%w (format %d, this one supports %d)", ErrNewer, format, known)
}

// DecodeStrict decodes one JSON value. The error wraps ErrNewer if the text has
// unknown fields, because only newer versions add fields.
func DecodeStrict(text []byte, value any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	strict := decoder.Decode(value)
	if strict == nil {
		if _, err := decoder.Token(); err != io.EOF {
			return errors.New("unexpected text after the object")
		}
		return nil
	}
	// This is slower, and happens only once: find the unknown field.
	unknown, err := Decode(text, value)
	if err != nil {
		return err
	}
	for name := range unknown {
		return fmt.Errorf("%w (it has the unknown field %.40q)", ErrNewer, name)
	}
	// It is within a list, which Decode does not check.
	return fmt.Errorf("%w (%.80s)", ErrNewer, strings.TrimPrefix(strict.Error(), "json: "))
}

// Unknown are fields that a program does not know: each a [json.RawMessage], or
// the Unknown of a known field. nil means none.
type Unknown map[string]any

// Decode reads one JSON object into a struct, and returns its unknown fields.
func Decode(text []byte, value any) (Unknown, error) {
	if err := json.Unmarshal(text, value); err != nil {
		return nil, err
	}
	return unknownOf(reflect.TypeOf(value), text), nil
}

// unknownOf returns the fields of an object that are not in a type.
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

// fieldOf returns the type of the field that encoding/json decodes a name into,
// nil if there is none, and its name when it is encoded.
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

// Encode encodes a struct as indented JSON, with the unknown fields that it had
// when it was read. Those of a removed field are dropped.
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
