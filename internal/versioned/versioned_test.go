package versioned

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

type inner struct {
	Path string `json:"path"`
}

type outer struct {
	Format int               `json:"format"`
	Name   string            `json:"name,omitempty"`
	Time   time.Time         `json:"time"`
	Labels map[string]string `json:"labels,omitempty"`
	Inner  *inner            `json:"inner,omitempty"`
	hidden int
}

func TestOnlyAHigherFormatIsNewer(t *testing.T) {
	for text, newer := range map[string]bool{
		`{"format":2,"shape":[1]}`: true, `{"format":999999999999}`: true,
		`{"format":1}`: false, `{"format":0}`: false, `{"format":-1}`: false, `{"format":"2"}`: false, `{"format":2`: false, `[2]`: false, ``: false, `{}`: false,
	} {
		if err := CheckFormat([]byte(text), "format", 1); errors.Is(err, ErrNewer) != newer {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := CheckFormat([]byte(`{"format":2}`), "format", 1); !strings.Contains(err.Error(), "written by a newer Daybook: upgrade") {
		t.Error(err)
	}
}

func TestUnknownFieldsAreKept(t *testing.T) {
	text := `{"format":1,"name":"a","time":"2026-01-02T03:04:05Z","hidden":7,"later":{"x":[1,2]},"labels":{"k":"v"},"inner":{"path":"/p","more":12345678901234567890}}`
	var value outer
	unknown, err := Decode([]byte(text), &value)
	if err != nil || value.Name != "a" || value.Inner.Path != "/p" || value.hidden != 0 {
		t.Fatalf("%+v, %v", value, err)
	}
	value.Name, value.Inner.Path = "b", "/q"
	again, err := Encode(value, unknown)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(`"a"`, `"b"`, `"/p"`, `"/q"`).Replace(text)
	if got := compact(t, again); got != compact(t, []byte(want)) {
		t.Errorf("%s, want %s", got, want)
	}
	// Unknown fields of a removed field are removed with it.
	value.Inner = nil
	again, err = Encode(value, unknown)
	if err != nil || strings.Contains(string(again), "more") || !strings.Contains(string(again), "later") {
		t.Errorf("%s, %v", again, err)
	}
	if err := DecodeStrict([]byte(text), &value); !errors.Is(err, ErrNewer) {
		t.Errorf("strictly: %v", err)
	}
}

func TestWithoutUnknownFieldsARecordIsWrittenAsItWas(t *testing.T) {
	value := outer{Format: 1, Labels: map[string]string{"k": "<v>"}}
	text, err := Encode(value, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.MarshalIndent(value, "", "  ")
	if err != nil || string(text) != string(want) {
		t.Errorf("%s, want %s", text, want)
	}
	var again outer
	unknown, err := Decode(text, &again)
	if err != nil || unknown != nil || !reflect.DeepEqual(again, value) {
		t.Errorf("%+v, %v, %v", again, unknown, err)
	}
	if _, err := Decode(append(text, "{}"...), &again); err == nil {
		t.Error("two values were read as one")
	}
}

// compact sorts the fields of objects.
func compact(t *testing.T, text []byte) string {
	t.Helper()
	var value map[string]json.RawMessage
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	for name, field := range value {
		if len(field) > 0 && field[0] == '{' {
			value[name] = json.RawMessage(compact(t, field))
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDecodingStrictlyRefusesUnknownFieldsAtAnyDepth(t *testing.T) {
	type part struct {
		Name string `json:"name"`
	}
	type record struct {
		Parts []part          `json:"parts"`
		ByKey map[string]part `json:"by_key"`
		One   part            `json:"one"`
	}
	for text, want := range map[string]string{
		`{"parts": [{"name": "a"}], "one": {"name": "b"}}`: "",
		`{"parts": [{"name": "a", "more": 1}]}`:            "more",
		`{"by_key": {"k": {"more": 1}}}`:                   "more",
		`{"one": {"more": 1}}`:                             "one",
		`{"more": 1}`:                                      "more",
	} {
		var r record
		err := DecodeStrict([]byte(text), &r)
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v; want ErrNewer that names %q", text, err, want)
		}
	}
	for _, text := range []string{`{} {}`, `{"one": 3}`, `{"one"`, ``} {
		var r record
		if err := DecodeStrict([]byte(text), &r); err == nil || errors.Is(err, ErrNewer) {
			t.Errorf("%q: %v; want an error that is not of a newer Daybook", text, err)
		}
	}
}
