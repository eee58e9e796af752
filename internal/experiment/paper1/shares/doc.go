// Package shares repeats Figs. 2, 3, 5 and 6 of paper 1: shares of a disk over time and
// their distribution, uncontrolled and under both laws.
package shares
