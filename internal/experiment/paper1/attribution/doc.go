// Package attribution repeats Table 1 of paper 1 with more operations. It compares the
// journal bytes that both estimators charge to each container with the bytes that an
// external journal device counts.
package attribution
