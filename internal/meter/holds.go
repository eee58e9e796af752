package meter

// observeHolds counts the waits in io.cost from the time on when it divides one of the
// disks. It asks the weights that were read for the sample.
func (m *Meter) observeHolds() {
	if m.holds {
		return
	}
	for _, d := range m.disks {
		if !d.weights.byCost() {
			continue
		}
		m.holds = true
		if err := m.probe.ObserveHolds(); err != nil {
			m.options.Log.Warn("the time for which io.cost holds back I/O is not counted as time with I/O outstanding", "error", err)
		}
		return
	}
}
