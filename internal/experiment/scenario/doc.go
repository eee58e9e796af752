// Package scenario runs containers that share a disk by weights, uncontrolled or under a
// law, and sums up what each of them got.
//
// Paper is the scenario of paper 1.
package scenario
