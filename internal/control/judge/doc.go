// Package judge compares what containers get of a disk with what they should get. It says
// whether the scheduler follows the weights in force ([Obedience]), whether the shares come
// out whatever the weights are ([Shortfall]), and when several windows in a row are enough
// for a conclusion ([Trust]).
//
// All of it is pure: observations go in, verdicts come out. docs/control-scheduler.md says how the
// bounds were chosen. Package control draws the conclusions.
package judge
