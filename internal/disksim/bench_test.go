package disksim

import (
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkServiceTimes compares the time of direct I/O on a real disk with
// that of the model. "x_model" is 1 for a perfect disk; block layer, loop
// device and FUSE increase it.
func BenchmarkServiceTimes(b *testing.B) {
	for _, preset := range PresetNames() {
		for _, shape := range []struct {
			name   string
			length int
			random bool
			write  bool
		}{
			{"sequential read 1 MiB", 1 << 20, false, false},
			{"sequential write 1 MiB", 1 << 20, false, true},
			{"sequential read 128 KiB", 128 << 10, false, false},
			{"random read 4 KiB", 4 << 10, true, false},
			{"random write 4 KiB", 4 << 10, true, true},
		} {
			b.Run(preset+"/"+shape.name, func(b *testing.B) {
				needDisks(b)
				r := newRig(b)
				const size = 1 << 30
				disk := r.create(Config{Name: "bench", SizeBytes: size, Parameters: presets[preset]})
				measure(b, disk, shape.length, shape.random, shape.write)
				if err := disk.Delete(b.Context()); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func measure(b *testing.B, disk *Disk, length int, atRandom, write bool) {
	b.Helper()
	fd, err := unix.Open(disk.DevicePath, unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	buffer, err := unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = unix.Munmap(buffer) }()

	model := Model{Parameters: disk.record.Parameters, SizeBytes: disk.record.SizeBytes}
	random := rand.New(rand.NewPCG(1, 2))
	places := int(model.SizeBytes) / length
	op, transfer := Read, unix.Pread
	if write {
		op, transfer = Write, unix.Pwrite
	}
	// The first request only moves the head to the start.
	if _, err := transfer(fd, buffer, 0); err != nil {
		b.Fatal(err)
	}
	head := uint64(length)
	var modelled time.Duration
	place := 0
	for b.Loop() {
		place = (place + 1) % places
		if atRandom {
			place = random.IntN(places)
		}
		offset := uint64(place * length)
		if n, err := transfer(fd, buffer, int64(offset)); err != nil || n != length {
			b.Fatalf("transferred %d of %d bytes: %v", n, length, err)
		}
		var service time.Duration
		service, head = model.Service(head, op, offset, uint64(length))
		modelled += service
	}
	b.SetBytes(int64(length))
	b.ReportMetric(b.Elapsed().Seconds()/modelled.Seconds(), "x_model")
}
