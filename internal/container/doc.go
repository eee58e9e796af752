// Package container says which container a cgroup belongs to, so that people
// see names where the kernel has paths.
//
// [Identify] is a pure function of the path: it knows how container runtimes,
// Kubernetes and systemd name cgroups. A [Resolver] adds what only the
// runtimes' state directories tell, where they can be read: the name of a
// Docker container, the pod of a Kubernetes container, which containers
// containerd and runc have put at paths of any form.
//
// The package asks no daemon and runs no program. State files are input like
// any other: bounded in size, cleaned of control characters, and without them
// the answer is what the path says.
package container
