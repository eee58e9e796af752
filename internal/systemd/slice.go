package systemd

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
)

const sliceSuffix = ".slice"

// MaxUnitName limits the bytes in the name of a unit.
const MaxUnitName = 255

// EscapeSlice writes a name as one component of a slice's name: a "-" would make a
// slice inside another (systemd-escape(1)).
func EscapeSlice(name string) string { return strings.ReplaceAll(name, "-", `\x2d`) }

// UnescapeSlice is the name that EscapeSlice has escaped.
func UnescapeSlice(component string) string {
	return strings.ReplaceAll(component, `\x2d`, "-")
}

// SliceCgroup is the path of a slice's cgroup: "a-b.slice" is inside "a.slice"
// (systemd.slice(5)). The root slice, "-.slice", has none here.
func SliceCgroup(slice string) (string, error) {
	name, found := strings.CutSuffix(slice, sliceSuffix)
	if !found || strings.Contains(name, "/") || slices.Contains(strings.Split(name, "-"), "") {
		return "", fmt.Errorf("%.100q is no name of a slice: want one such as daybook-db1.slice", slice)
	}
	at := ""
	for end, c := range name + "-" {
		if c == '-' {
			at += "/" + name[:end] + sliceSuffix
		}
	}
	return at, nil
}

// SliceOf is the slice that has the cgroup at a path; "" if none can have it.
func SliceOf(cgroup string) string {
	slice := path.Base(cgroup)
	if at, err := SliceCgroup(slice); err != nil || at != cgroup {
		return ""
	}
	return slice
}

// How long a slice may take to start or stop, and the pause between two looks.
const (
	slicePatience = 5 * time.Second
	slicePause    = 5 * time.Millisecond
)

// auxiliary is a unit of StartTransientUnit.
type auxiliary struct {
	Name       string
	Properties []propertyChange
}

// StartSlice starts a slice with the I/O controller, until the next boot. A slice
// above it that does not run is started as well, and stops when nothing is left in
// it. It is no error if the slice runs.
func (m *Manager) StartSlice(ctx context.Context, slice, description string) error {
	at, err := SliceCgroup(slice)
	if err != nil {
		return err
	}
	if active, err := m.active(slice); err != nil || active {
		return err
	}
	set := func(name string, value any) propertyChange { return propertyChange{name, dbus.MakeVariant(value)} }
	var above []auxiliary
	for ; ; at = path.Dir(at) {
		parent := path.Base(path.Dir(at))
		if parent == "/" {
			break
		}
		known, err := m.known(parent)
		if err != nil {
			return err
		}
		if !known {
			above = append(above, auxiliary{parent, []propertyChange{set("IOAccounting", true), set("StopWhenUnneeded", true)}})
		}
	}
	properties := []propertyChange{set("Description", description), set("IOAccounting", true)}
	const mode = "replace"
	var job dbus.ObjectPath
	if err := m.call(object, manager+".StartTransientUnit", []any{slice, mode, properties, above}, &job); err != nil {
		return fmt.Errorf("systemd does not start %s: %w", slice, err)
	}
	return m.await(ctx, slice, true)
}

// StopSlice stops a slice, and everything in it. It is no error if it does not run.
func (m *Manager) StopSlice(ctx context.Context, slice string) error {
	if len(slice) > MaxUnitName {
		return nil // systemd has none of that name, and refuses the call
	}
	const mode = "replace"
	var job dbus.ObjectPath
	err := m.call(object, manager+".StopUnit", []any{slice, mode}, &job)
	if isNoUnit(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("systemd does not stop %s: %w", slice, err)
	}
	return m.await(ctx, slice, false)
}

// await waits until a unit runs, or does not run.
func (m *Manager) await(ctx context.Context, unit string, active bool) error {
	for end := time.Now().Add(slicePatience); ; {
		now, err := m.active(unit)
		if err != nil || now == active {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("systemd did not start or stop %s within %s", unit, slicePatience)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(slicePause):
		}
	}
}

// active says whether a unit runs.
func (m *Manager) active(unit string) (bool, error) {
	state, err := m.state(unit, "ActiveState")
	return state == "active", err
}

// known says whether a unit runs, or somebody has configured it.
func (m *Manager) known(unit string) (bool, error) {
	active, err := m.active(unit)
	if err != nil || active {
		return active, err
	}
	var at dbus.ObjectPath
	if err := m.call(object, manager+".LoadUnit", []any{unit}, &at); err != nil {
		return false, wrapUnit(unit, err)
	}
	var fragment string
	var dropIns []string
	err = errors.Join(m.property(at, unitType, "FragmentPath", &fragment), m.property(at, unitType, "DropInPaths", &dropIns))
	return fragment != "" || len(dropIns) > 0, err
}

// state is a property of a unit; "" if systemd has not loaded it.
func (m *Manager) state(unit, name string) (string, error) {
	var at dbus.ObjectPath
	err := m.call(object, manager+".GetUnit", []any{unit}, &at)
	if isNoUnit(err) {
		return "", nil
	}
	if err != nil {
		return "", wrapUnit(unit, err)
	}
	var state string
	if err := m.property(at, unitType, name, &state); err != nil && !isNoUnit(err) {
		return "", err
	}
	return state, nil
}
