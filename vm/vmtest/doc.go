// Package vmtest runs Go tests in guests, on each kernel that is pinned:
//
//	func TestShares(t *testing.T) {
//		vmtest.InGuest(t, vmtest.Config{Disks: []string{"256M"}, Modules: "ext4,bfq"}, func(t *testing.T) {
//			// runs as root in the guest; the disk is /dev/daybook/disk0
//		})
//	}
//
// The test binary is copied to the guest and runs there that one subtest
// (TestShares/kernel-6.1); its output and its result become those of the test
// on the host. What is outside the function runs on both sides.
//
//	go test                                   guest
//	TestShares ── InGuest ─┬─ kernel-6.1  ──▶ TestShares/kernel-6.1 ─ the function
//	                       └─ kernel-6.12 ──▶ TestShares/kernel-6.12
//
// Tests of a package with the same Config share a boot, one after the other:
// who needs a guest that nobody used before says Fresh. A test also fails if
// the kernel reports a fault of its own, such as WARNING or BUG.
//
// DAYBOOK_VM_KERNELS=6.1 narrows the kernels. Tests that take long begin with
// [Long], and run when DAYBOOK_VM_LONG=1, which "make vm-test" sets. Where QEMU
// or a kernel is missing, tests are skipped with the reason; with
// DAYBOOK_REQUIRE_ALL=1 they fetch the kernel, or fail.
package vmtest
