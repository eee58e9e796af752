package main

import (
	"encoding"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/adopt"
	"github.com/daybook-project/daybook/internal/doctor"
	"github.com/daybook-project/daybook/volume"
)

// A field that only some hosts have (systemd, cgroup v2, LVM, memory) is also in the
// schema: outputs of this host do not show it.
func TestEachFieldOfTheJSONOutputsIsInItsSchema(t *testing.T) {
	text, err := os.ReadFile("../../docs/schemas/daybook.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Defs map[string]map[string]any `json:"$defs"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	fields := schemaFields{defs: file.Defs}
	for command, value := range map[string]any{
		"sample":          account.Sample{},
		"blame":           blameOutput{},
		"advise":          adviseOutput{},
		"disk-create":     diskJSON{},
		"doctor":          doctor.Report{},
		"restore":         restored{},
		"volume-create":   volume.Record{},
		"volume-inspect":  inspectJSON{},
		"volume-attach":   volume.Status{},
		"volume-snapshot": volume.SnapshotRecord{},
		"volume-check":    volume.CheckReport{},
	} {
		fields.compare(t, command, reflect.TypeOf(value), []map[string]any{file.Defs[command]})
	}
	for command, lists := range map[string]map[string]any{
		"adopt":         {"adopted": adopt.Status{}},
		"volume-repair": {"pools": repairedJSON{}},
		"volume-pool":   {"pools": poolJSON{}},
		"volume-list":   {"volumes": volume.Status{}},
	} {
		for list, value := range lists {
			fields.compare(t, command+"."+list+"[]", reflect.TypeOf(value), fields.items(fields.property([]map[string]any{file.Defs[command]}, list)))
		}
	}
	if fields.compared < 250 {
		t.Errorf("only %d fields were compared", fields.compared)
	}
}

// schemaFields compares types with the definitions of a schema.
type schemaFields struct {
	defs     map[string]map[string]any
	compared int
}

// all are the schemas, with those that they refer to or choose among.
func (f *schemaFields) all(schemas []map[string]any) (all []map[string]any) {
	for _, schema := range schemas {
		all = append(all, schema)
		if to, ok := schema["$ref"].(string); ok {
			all = append(all, f.all([]map[string]any{f.defs[strings.TrimPrefix(to, "#/$defs/")]})...)
		}
		for _, word := range []string{"anyOf", "oneOf", "allOf"} {
			some, _ := schema[word].([]any)
			for _, one := range some {
				all = append(all, f.all([]map[string]any{one.(map[string]any)})...)
			}
		}
	}
	return all
}

// property is what the schemas say of a property; nil if they do not name it.
func (f *schemaFields) property(schemas []map[string]any, name string) (found []map[string]any) {
	for _, schema := range f.all(schemas) {
		properties, _ := schema["properties"].(map[string]any)
		if property, ok := properties[name].(map[string]any); ok {
			found = append(found, property)
		}
	}
	return found
}

// items is what the schemas say of the elements of a list or the values of a map.
func (f *schemaFields) items(schemas []map[string]any) (found []map[string]any) {
	for _, schema := range f.all(schemas) {
		for _, word := range []string{"items", "additionalProperties"} {
			if items, ok := schema[word].(map[string]any); ok {
				found = append(found, items)
			}
		}
	}
	return found
}

// compare fails for each field of the type that the schemas do not name.
func (f *schemaFields) compare(t *testing.T, at string, of reflect.Type, schemas []map[string]any) {
	t.Helper()
	if of.Implements(reflect.TypeFor[json.Marshaler]()) || of.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return
	}
	switch of.Kind() {
	case reflect.Pointer:
		f.compare(t, at, of.Elem(), schemas)
	case reflect.Slice, reflect.Array, reflect.Map:
		f.compare(t, at+"[]", of.Elem(), f.items(schemas))
	case reflect.Struct:
		for i := range of.NumField() {
			field := of.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case field.Anonymous && name == "":
				f.compare(t, at, field.Type, schemas)
				continue
			case !field.IsExported() || name == "-":
				continue
			case name == "":
				t.Errorf("%s: the field %s of %s has no JSON name", at, field.Name, of)
				continue
			}
			f.compared++
			property := f.property(schemas, name)
			if len(property) == 0 {
				t.Errorf("%s: docs/schemas/daybook.schema.json does not name the field %q of %s", at, name, of)
				continue
			}
			f.compare(t, at+"."+name, field.Type, property)
		}
	default:
		if !slices.Contains([]reflect.Kind{reflect.Bool, reflect.String, reflect.Float64}, of.Kind()) && !of.ConvertibleTo(reflect.TypeFor[int]()) {
			t.Errorf("%s: a %s in JSON", at, of.Kind())
		}
	}
}
