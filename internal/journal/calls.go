package journal

// Call is a count of one operation by one cgroup.
type Call struct {
	Cgroup    uint64
	Operation string
	Count     uint64
}
