package law

import (
	"fmt"
	"testing"
)

// BenchmarkFeedback is one interval of the law over siblings that all do I/O.
func BenchmarkFeedback(b *testing.B) {
	for _, count := range []int{2, 64, 1000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			var containers []*simContainer
			for range count {
				containers = append(containers, reader(100))
			}
			observations := newSimDisk(1, 0.1, containers...).run(5)
			law := NewFeedback(BFQRange)
			for b.Loop() {
				law.Next(5, observations)
			}
		})
	}
}
