package meter

import "github.com/daybook-project/daybook/internal/account"

// describe adds names, weights and targets to the account of a device, and the
// idle containers, so that they are shown.
func (m *Meter) describe(device *account.Device) {
	m.addIdle(device)
	var weights *weightCache
	for _, d := range m.disks {
		if d.disk.Name == device.Device {
			weights, device.Volume, device.Note = d.weights, d.volume, d.note
		}
	}
	weights.begin(len(device.Containers))
	for i := range device.Containers {
		c := &device.Containers[i]
		c.Name = c.Cgroup
		if who, ok := m.units.byPath[c.Cgroup]; ok {
			c.Name, c.Runtime = who.name, who.runtime
		}
		if account.Adjustable(c.Cgroup) {
			c.Weight = weights.get(c.Cgroup)
		}
	}
	if m.options.Promises == nil && m.targetConfigured(device) {
		return
	}
	promises, promised := m.promises(device.Device)
	if promised {
		device.Control = &promises.Control
	}
	targetTree(device, promises, weights)
}

// addIdle adds the containers that did nothing.
func (m *Meter) addIdle(device *account.Device) {
	clear(m.present)
	for _, c := range device.Containers {
		m.present[c.Cgroup] = true
	}
	m.units.alive(func(path string) {
		if m.present[path] {
			return
		}
		who := m.units.byPath[path]
		if _, ideal := m.ideal(path, who.name); ideal || who.runtime != "" {
			m.present[path] = true
			device.Containers = append(device.Containers, account.Container{Cgroup: path})
		}
	})
}

// targetConfigured sets the target shares of the weights of Options.Ideal, as one level.
// It returns false if there is no such weight.
func (m *Meter) targetConfigured(device *account.Device) bool {
	var sum float64
	for i := range device.Containers {
		c := &device.Containers[i]
		if !account.Adjustable(c.Cgroup) {
			continue
		}
		if weight, ok := m.ideal(c.Cgroup, c.Name); ok {
			c.TargetShare = float64(weight)
			sum += c.TargetShare
		}
	}
	if sum == 0 {
		return false
	}
	for i := range device.Containers {
		device.Containers[i].TargetShare /= sum
	}
	return true
}

// targetTree sets the target shares of the tree of weights, as configured or as first
// found.
func targetTree(device *account.Device, promises Promises, weights *weightCache) {
	weight := func(path string) float64 {
		if w := promises.Weights[path]; w > 0 {
			return float64(w)
		}
		if promises.Configured {
			return 1 // alone on its level
		}
		return weights.first(path)
	}
	paths := make([]string, 0, len(device.Containers))
	for _, c := range device.Containers {
		if account.Adjustable(c.Cgroup) && (!promises.Configured || promises.Units[c.Cgroup]) {
			paths = append(paths, c.Cgroup)
		}
	}
	targets := targetShares(paths, weight)
	for i := range device.Containers {
		device.Containers[i].TargetShare = targets[device.Containers[i].Cgroup]
	}
}

func (m *Meter) promises(device string) (Promises, bool) {
	if m.options.Promises == nil {
		return Promises{}, false
	}
	return m.options.Promises(device)
}

func (m *Meter) ideal(path, name string) (uint64, bool) {
	if m.options.Ideal == nil {
		return 0, false
	}
	return m.options.Ideal(path, name)
}
