package iocost

import (
	"fmt"
	"strings"
)

// Coefficients are those of io.cost's linear model, by the names of io.cost.model
// (Documentation/admin-guide/cgroup-v2.rst): bytes per second of large sequential
// requests, and requests of 4 KiB per second, one after the other and at random.
type Coefficients struct {
	ReadBytesPerSecond       uint64 `json:"rbps"`
	ReadSequentialPerSecond  uint64 `json:"rseqiops"`
	ReadRandomPerSecond      uint64 `json:"rrandiops"`
	WriteBytesPerSecond      uint64 `json:"wbps"`
	WriteSequentialPerSecond uint64 `json:"wseqiops"`
	WriteRandomPerSecond     uint64 `json:"wrandiops"`
}

// OfRate are the coefficients of a disk on which only bytes count: one that does not seek,
// with a limit in bytes per second for reads and for writes.
func OfRate(bytesPerSecond uint64) Coefficients {
	pages := bytesPerSecond / 4096
	return Coefficients{bytesPerSecond, pages, pages, bytesPerSecond, pages, pages}
}

// Named is a coefficient with its name in io.cost.model.
type Named struct {
	Name  string
	Value uint64
}

// Named lists the coefficients in the kernel's order.
func (c Coefficients) Named() []Named {
	return []Named{
		{"rbps", c.ReadBytesPerSecond}, {"rseqiops", c.ReadSequentialPerSecond}, {"rrandiops", c.ReadRandomPerSecond},
		{"wbps", c.WriteBytesPerSecond}, {"wseqiops", c.WriteSequentialPerSecond}, {"wrandiops", c.WriteRandomPerSecond},
	}
}

// Check rejects coefficients that io.cost cannot use.
func (c Coefficients) Check() error {
	for _, n := range c.Named() {
		if n.Value == 0 {
			return fmt.Errorf("%s is 0", n.Name)
		}
	}
	return nil
}

// Times returns a part of all rates, each at least 1.
func (c Coefficients) Times(part float64) Coefficients {
	of := func(rate uint64) uint64 { return max(1, uint64(part*float64(rate))) }
	return Coefficients{
		of(c.ReadBytesPerSecond), of(c.ReadSequentialPerSecond), of(c.ReadRandomPerSecond),
		of(c.WriteBytesPerSecond), of(c.WriteSequentialPerSecond), of(c.WriteRandomPerSecond),
	}
}

// Model is the text for io.cost.model behind the disk's device number.
func (c Coefficients) Model() string {
	words := []string{"ctrl=user model=linear"}
	for _, n := range c.Named() {
		words = append(words, fmt.Sprintf("%s=%d", n.Name, n.Value))
	}
	return strings.Join(words, " ")
}
