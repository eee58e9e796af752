package account

// Sum adds up the first device of the samples. Shares are of the sums; the
// weight is the last one, and so is what control did; that weights were ignored
// in one of the samples is kept.
func Sum(samples []Sample) Device {
	var sum Device
	lines := make(map[string]*Container)
	var order []string
	for _, sample := range samples {
		if len(sample.Devices) == 0 {
			continue
		}
		d := sample.Devices[0]
		sum.Device, sum.Dev = d.Device, d.Dev
		sum.DiskBytes += d.DiskBytes
		sum.JournalBytes += d.JournalBytes
		sum.JournalElsewhereBytes += d.JournalElsewhereBytes
		sum.MetadataBytes += d.MetadataBytes
		sum.UnaccountedBytes += d.UnaccountedBytes
		sum.CommitSeconds += d.CommitSeconds * float64(d.Transactions)
		sum.Transactions += d.Transactions
		sum.LostEvents += d.LostEvents
		if d.Control != nil {
			control := *d.Control
			if sum.Control != nil {
				control.WeightsIgnored = control.WeightsIgnored || sum.Control.WeightsIgnored
			}
			sum.Control = &control
		}
		for _, c := range d.Containers {
			line := lines[c.Cgroup]
			if line == nil {
				line = &Container{Cgroup: c.Cgroup, Name: c.Name, Runtime: c.Runtime}
				lines[c.Cgroup] = line
				order = append(order, c.Cgroup)
			}
			line.TargetShare, line.Weight = c.TargetShare, c.Weight
			line.ChargedReadBytes += c.ChargedReadBytes
			line.ChargedWriteBytes += c.ChargedWriteBytes
			line.JournalBytes += c.JournalBytes
			line.MetadataBytes += c.MetadataBytes
			line.UnchargedBytes += c.UnchargedBytes
			line.ReturnedBytes += c.ReturnedBytes
			line.ForcedCommits += c.ForcedCommits
			line.RequestSeconds += c.RequestSeconds
			line.BusySeconds += c.BusySeconds
			line.FlushSeconds += c.FlushSeconds
			line.StackedSeconds += c.StackedSeconds
			line.MemoryJournalBytes += c.MemoryJournalBytes
			line.MemoryJournalHandles += c.MemoryJournalHandles
		}
	}
	if sum.Transactions > 0 {
		sum.CommitSeconds /= float64(sum.Transactions)
	}
	var total uint64
	for _, line := range lines {
		total += line.Bytes()
	}
	for _, key := range order {
		if total > 0 {
			lines[key].Share = float64(lines[key].Bytes()) / float64(total)
		}
		sum.Containers = append(sum.Containers, *lines[key])
	}
	return sum
}

// Container gives the first line of that name in any of the sample's devices; a line of
// zeros if there is none.
func (s Sample) Container(name string) Container {
	for _, device := range s.Devices {
		for _, c := range device.Containers {
			if c.Name == name {
				return c
			}
		}
	}
	return Container{}
}
