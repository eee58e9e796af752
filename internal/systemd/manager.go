// Package systemd sets I/O weights of units over D-Bus. systemd owns the cgroup of
// a unit: what others write to the cgroup's weight files is lost when systemd
// applies the unit's settings again, as at daemon-reload.
package systemd

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
)

// Running says whether systemd is this host's init, as sd_booted(3) does.
func Running() bool {
	info, err := os.Lstat("/run/systemd/system")
	return err == nil && info.IsDir()
}

const (
	service   = "org.freedesktop.systemd1"
	object    = dbus.ObjectPath("/org/freedesktop/systemd1")
	manager   = service + ".Manager"
	unitType  = service + ".Unit"
	property  = "IODeviceWeight"
	getMethod = "org.freedesktop.DBus.Properties.Get"
)

// Errors of systemd that say that there is no such unit.
var noUnit = []string{service + ".NoUnitForPID", service + ".NoSuchUnit", service + ".UnitInactive", "org.freedesktop.DBus.Error.UnknownObject"}

// Manager is systemd's, the one that runs the system. The zero value connects to
// the system bus when it is first used, and again when the connection is lost.
//
// If systemd or the bus does not answer a call, later ones do not wait as long for it,
// and most fail at once with [ErrSilent] or [ErrBusy], until it answers again.
type Manager struct {
	// Patience bounds a call to a systemd that answered the last one; 0: callPatience.
	Patience time.Duration

	mu         sync.Mutex
	connection *dbus.Conn
	patience   patience
}

// DeviceWeight is a unit's weight on one block device.
type DeviceWeight struct {
	Path   string // as the unit has it, such as /dev/sda
	Weight uint64 // 1..10000
}

// Unit names the unit whose own cgroup this is; "" for a cgroup below a unit's,
// which systemd leaves to the unit, and for one that systemd did not make.
func (m *Manager) Unit(cgroup string) (string, error) {
	if !NamedLikeUnit(cgroup) {
		return "", nil
	}
	var at dbus.ObjectPath
	if err := m.call(object, manager+".GetUnitByControlGroup", []any{cgroup}, &at); err != nil {
		if isNoUnit(err) {
			return "", nil
		}
		return "", fmt.Errorf("cannot ask systemd for the unit of %s: %w", cgroup, err)
	}
	var id string
	if err := m.property(at, unitType, "Id", &id); err != nil {
		return "", err
	}
	var own string
	if err := m.property(at, typeOf(id), "ControlGroup", &own); err != nil {
		return "", err
	}
	if own != cgroup {
		return "", nil
	}
	return id, nil
}

// DeviceWeights are a unit's weights on single devices.
func (m *Manager) DeviceWeights(unit string) ([]DeviceWeight, error) {
	at, err := m.unit(unit)
	if err != nil {
		return nil, err
	}
	var weights []DeviceWeight
	err = m.property(at, typeOf(unit), property, &weights)
	return weights, err
}

// SetDeviceWeights changes a unit's weights on single devices, until the next
// boot. The unit's other devices keep theirs.
func (m *Manager) SetDeviceWeights(unit string, weights ...DeviceWeight) error {
	return m.set(unit, change(weights))
}

// ReplaceDeviceWeights makes these all of a unit's weights on single devices,
// until the next boot.
func (m *Manager) ReplaceDeviceWeights(unit string, weights ...DeviceWeight) error {
	changes := []propertyChange{change(nil)} // an empty list takes all away
	if len(weights) > 0 {
		changes = append(changes, change(weights))
	}
	return m.set(unit, changes...)
}

// propertyChange is a property and its value, as SetUnitProperties takes them.
type propertyChange struct {
	Name  string
	Value dbus.Variant
}

func change(weights []DeviceWeight) propertyChange {
	if weights == nil {
		weights = []DeviceWeight{}
	}
	return propertyChange{property, dbus.MakeVariant(weights)}
}

func (m *Manager) set(unit string, changes ...propertyChange) error {
	const runtime = true
	if err := m.call(object, manager+".SetUnitProperties", []any{unit, runtime, changes}); err != nil {
		return fmt.Errorf("systemd refuses to set %s of %s: %w", property, unit, err)
	}
	return nil
}

// unit gives the object of a unit. systemd unloads units that are stopped, and their
// settings remain: so it is loaded.
func (m *Manager) unit(name string) (dbus.ObjectPath, error) {
	var at dbus.ObjectPath
	err := m.call(object, manager+".GetUnit", []any{name}, &at)
	if err == nil || !isNoUnit(err) {
		return at, wrapUnit(name, err)
	}
	if err := m.call(object, manager+".LoadUnit", []any{name}, &at); err != nil {
		return "", wrapUnit(name, err)
	}
	var state string
	if err := m.property(at, unitType, "LoadState", &state); err != nil {
		return "", err
	}
	if state != "loaded" {
		return "", wrapUnit(name, fmt.Errorf("%w (LoadState=%s)", errNoUnit, state))
	}
	return at, nil
}

func wrapUnit(name string, err error) error {
	if err != nil {
		err = fmt.Errorf("cannot find the unit %s: %w", name, err)
	}
	return err
}

func (m *Manager) property(at dbus.ObjectPath, of, name string, value any) error {
	var variant dbus.Variant
	if err := m.call(at, getMethod, []any{of, name}, &variant); err != nil {
		return fmt.Errorf("cannot ask systemd for %s: %w", name, err)
	}
	return variant.Store(value)
}

// Await makes calls wait for a silent systemd until end is called, together for
// undoPatience, because what they undo would stay otherwise. It can be repeated, and does
// not add up while systemd answers none.
func (m *Manager) Await() (end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.patience.await(time.Now())
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.patience.endAwait()
	}
}

// IsGone says that an error means that the unit does not exist any more.
func IsGone(err error) bool { return errors.Is(err, errNoUnit) || isNoUnit(err) }

// errNoUnit: systemd made an object of that name alone.
var errNoUnit = errors.New("there is no such unit")

func isNoUnit(err error) bool {
	var failure dbus.Error
	if !errors.As(err, &failure) {
		return false
	}
	for _, name := range noUnit {
		if failure.Name == name {
			return true
		}
	}
	return false
}

// typeOf is the D-Bus interface of a unit's kind, such as
// org.freedesktop.systemd1.Service.
func typeOf(unit string) string {
	kind := strings.TrimPrefix(path.Ext(unit), ".")
	return service + "." + strings.ToUpper(kind[:1]) + kind[1:]
}

// NamedLikeUnit says whether a cgroup may be a unit's own, by its path.
func NamedLikeUnit(cgroup string) bool {
	name := path.Base(cgroup)
	switch kind := path.Ext(name); kind {
	case ".service", ".scope", ".slice", ".socket", ".mount", ".swap":
		return name != kind
	}
	return false
}
