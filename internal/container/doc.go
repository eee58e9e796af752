// Package container maps a cgroup to its container, so that users see names
// instead of kernel paths.
//
// [Identify] is a pure function of the path: it knows how container runtimes,
// Kubernetes and systemd name cgroups. A [Resolver] adds the facts from the
// runtimes' state directories, if they are readable: the name of a Docker
// container, the pod of a Kubernetes container, and the containers of
// containerd and runc at arbitrary paths.
//
// The package queries no daemon and runs no program. State files are untrusted
// input: limited in size and cleaned of control characters. Without them the
// result depends only on the path.
package container
