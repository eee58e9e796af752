// Package dockervolume is a volume plugin for Docker and podman over a pool of
// package volume: each volume of theirs is an ext4 of its own with its own jbd2
// thread, attached while a container uses it.
//
// The protocol is Docker's legacy one: JSON over HTTP over a unix socket in
// /run/docker/plugins, whose file name is the driver's name
// (https://docs.docker.com/engine/extend/plugins_volume/). Who may write to the
// socket is root on the host already.
//
//	options.go   Docker's options, checked and kept as labels (pure)
//	users.go     who uses which volume, kept in the pool's docker.json
//	driver.go    what each call does
//	names.go     one call at a time on a volume
//	protocol.go  the calls over HTTP
//	socket.go    the socket, by systemd or our own
//	run.go       the daemon
//
// A killed daemon loses nothing: containers keep their mounts, and the next one
// reads who they are. It is no engine's client: it asks Docker nothing.
package dockervolume
