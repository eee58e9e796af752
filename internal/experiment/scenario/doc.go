// Package scenario runs containers that share a disk by weights, uncontrolled or under a
// law, and sums up the I/O of each.
//
// Paper is the scenario of paper 1.
package scenario
