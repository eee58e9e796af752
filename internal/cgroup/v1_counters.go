package cgroup

// v1 is the blkio controller: Documentation/admin-guide/cgroup-v1/blkio-controller.rst.
type v1 struct{}

const (
	v1BFQBytes      = "blkio.bfq.io_service_bytes_recursive"
	v1ThrottleBytes = "blkio.throttle.io_service_bytes_recursive"
)

// counterFiles: BFQ's count stands for the disks that use BFQ, because it is
// the one that BFQ shares by and that keeps what removed children did; the
// throttle count stands for the others. See FromBFQ and FromThrottle.
func (v1) counterFiles() []counterFile {
	return []counterFile{
		{v1BFQBytes, FromBFQ, parseRWStat},
		{v1ThrottleBytes, FromThrottle, parseRWStat},
	}
}
