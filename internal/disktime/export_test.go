package disktime

import "github.com/cilium/ebpf"

// OpenUnmarked opens a probe as on a kernel whose jbd2 does not mark its writes.
func OpenUnmarked() (*Probe, error) {
	return open(func(spec *ebpf.CollectionSpec) error { return spec.Variables["marks"].Set(false) })
}
