package cgroup

// v1 is the blkio controller: Documentation/admin-guide/cgroup-v1/blkio-controller.rst.
type v1 struct{}

const (
	v1BFQBytes      = "blkio.bfq.io_service_bytes_recursive"
	v1ThrottleBytes = "blkio.throttle.io_service_bytes_recursive"
)

// counterFiles prefers BFQ's count for disks that use BFQ, because BFQ divides
// by it and it keeps the I/O of removed children. The throttle count is for the
// other disks. See FromBFQ and FromThrottle.
func (v1) counterFiles() []counterFile {
	return []counterFile{
		{v1BFQBytes, FromBFQ, parseRWStat},
		{v1ThrottleBytes, FromThrottle, parseRWStat},
	}
}
