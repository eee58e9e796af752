// Package law computes the weights and limits that make the I/O of containers match their
// shares of a disk. [Paper] is the law of paper 1 (section 3.3, equation 4), [Feedback] is
// Daybook's own, and [LimitLaw] is for schedulers that do not follow weights.
//
// All of it is pure: an [Observation] of each sibling goes in, weights or limits come out.
// Shares are divided max-min fairly ([Level]); numbers for weight files are whole ones
// ([Quantize], [Scale]). docs/control-law.md explains the laws and their constants. Package
// control applies them.
package law
