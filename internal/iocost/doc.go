// Package iocost has the kernel's linear model of a disk for io.cost, and the settings that
// Daybook proposes for a disk whose rates were measured.
package iocost
