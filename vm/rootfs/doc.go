// Package rootfs makes the root file system of guests that run systemd: Debian,
// as mmdebstrap installs it, in an ext4 image. It is built once and kept in the
// cache; each guest writes to its own overlay.
package rootfs
