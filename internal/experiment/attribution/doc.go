// Package attribution makes Table 1 of paper 1, widened: it compares the journal bytes that
// both estimators charge to each container with what reached an external journal device.
package attribution
