package cgroup

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkKernelInterval measures one interval of the daemon on a host with
// 1,000 more cgroups, nested like pods or flat, each with counters of a BFQ
// disk. cpu-ms/op is the CPU time, user and system, of listing them and reading
// all counters.
func BenchmarkKernelInterval(b *testing.B) {
	for _, shape := range []struct {
		name       string
		pods, each int
	}{{"flat", 0, 1000}, {"pods", 333, 2}} {
		b.Run(shape.name, func(b *testing.B) {
			tree := hostTree(b)
			disk := newLoopDisk(b, "bfq")
			path := hostCgroup(b, tree)
			var leaves []string
			if shape.pods == 0 {
				for i := range shape.each {
					leaves = append(leaves, fmt.Sprintf("%s/%064d", path, i))
				}
			}
			for pod := range shape.pods {
				for i := range shape.each {
					leaves = append(leaves, fmt.Sprintf("%s/pod%036d/%064d", path, pod, i))
				}
			}
			for _, leaf := range leaves {
				makeCgroup(b, tree, leaf)
			}
			// BFQ has a group once a weight was set for it.
			w, err := tree.Weights(disk.dev, "bfq")
			if err != nil {
				b.Fatal(err)
			}
			for _, leaf := range leaves {
				if err := w.Set(leaf, 100); err != nil {
					b.Fatal(err)
				}
			}
			r := tree.NewReader()
			defer r.Close()
			if _, err := r.Read(context.Background()); err != nil {
				b.Fatal(err)
			}
			counted := 0
			b.ReportAllocs()
			before := cpuNanoseconds()
			b.ResetTimer()
			for b.Loop() {
				readings, err := r.Read(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				counted = 0
				for _, reading := range readings {
					counted += len(reading.IO)
				}
			}
			b.ReportMetric(float64(cpuNanoseconds()-before)/float64(b.N)/1e6, "cpu-ms/op")
			b.ReportMetric(float64(counted), "counters")
		})
	}
}

func cpuNanoseconds() int64 {
	var usage unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &usage)
	return usage.Utime.Nano() + usage.Stime.Nano()
}
