// Package shares makes Figs. 2, 3, 5 and 6 of paper 1: shares of a disk over time, and how
// often which share, uncontrolled and under both laws.
package shares
