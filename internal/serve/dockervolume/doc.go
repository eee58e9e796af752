// Package dockervolume is the volume plugin for Docker and podman on a pool of
// package volume. Each of their volumes is an ext4 with its own jbd2 thread,
// attached while a container uses it.
//
// The protocol is Docker's legacy one: JSON over HTTP over a unix socket in
// /run/docker/plugins, whose file name is the driver's name
// (https://docs.docker.com/engine/extend/plugins_volume/). A process that
// may write to the socket is already root on the host.
//
//	options.go   Docker's options, checked and kept as labels (pure)
//	users.go     the users of each volume, stored in the pool's docker.json
//	driver.go    what each call does
//	names.go     one call at a time on a volume
//	protocol.go  the calls over HTTP
//	socket.go    the socket, from systemd or created here
//	run.go       the daemon
//
// A killed daemon loses nothing: containers keep their mounts, and the next
// daemon reads the users from the pool. The plugin never calls an engine.
package dockervolume
