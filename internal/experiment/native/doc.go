// Package native runs Linux as a program of the host (User Mode Linux), so that code of
// the kernel runs on the host's processors.
package native
