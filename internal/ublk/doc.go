// Package ublk serves image files as block devices from user space, by the kernel's
// driver ublk_drv (Linux 6.0 and later; Debian builds it since 6.12). It is for
// experiments: a process serves one image, in a cgroup of its own, so that all requests
// to the disk come from one process of the container. Nothing continues if the process
// ends.
package ublk
