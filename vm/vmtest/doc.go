// Package vmtest runs Go tests in guests, on each pinned kernel:
//
//	func TestShares(t *testing.T) {
//		vmtest.InGuest(t, vmtest.Config{Disks: []string{"256M"}, Modules: "ext4,bfq"}, func(t *testing.T) {
//			// runs as root in the guest; the disk is /dev/daybook/disk0
//		})
//	}
//
// The test binary is copied to the guest and runs that one subtest there
// (TestShares/kernel-6.1); its output and its result become those of the test
// on the host. Code outside the function runs on both sides.
//
//	go test                                   guest
//	TestShares ── InGuest ─┬─ kernel-6.1  ──▶ TestShares/kernel-6.1 ─ the function
//	                       └─ kernel-6.12 ──▶ TestShares/kernel-6.12
//
// Tests of a package with the same Config share a guest, one after the other.
// Config.Fresh requests a guest that no other test uses. A test also fails if
// the kernel reports a fault, such as WARNING or BUG.
//
// DAYBOOK_VM_KERNELS=6.1 restricts the kernels. Long tests call [Long] first, and
// run only if DAYBOOK_VM_LONG=1. If QEMU or a kernel is missing, tests are skipped
// with the reason; with DAYBOOK_REQUIRE_ALL=1 they fetch the kernel, or fail.
// "make vm-test" sets both.
package vmtest
