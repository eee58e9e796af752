package cgroup

// v2 is the io controller: Documentation/admin-guide/cgroup-v2.rst.
type v2 struct{}

const v2IOStat = "io.stat"

// counterFiles: io.stat exists in every cgroup whose parent enables io, and in
// the root from kernel 5.9 on.
func (v2) counterFiles() []counterFile {
	return []counterFile{{v2IOStat, FromIOStat, parseIOStat}}
}
