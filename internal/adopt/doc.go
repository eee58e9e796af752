// Package adopt places the journal threads of ext4 file systems that others have mounted in
// the cgroups of the containers that use them, and keeps them there. It builds on
// [github.com/daybook-project/daybook/volume/placement]; a file system needs no pool and no
// record of a volume.
//
// A [Keeper] converges to what its caller wants: it places a thread again after a remount,
// and releases it when only journal threads are left in the container's cgroup, because a
// thread inside prevents the removal of the cgroup.
//
// A [Store] has the records, one file for each file system. Each change to cgroups is
// recorded before it is made. [Store.UndoAbandoned] undoes what dead keepers left. A keeper
// starts a guardian, a process that does so as soon as the keeper has died.
package adopt
