// Package guestlvm measures thin logical volumes beside a busy neighbour against thick
// ones, in a guest. No paper shows it: dm-thin has one worker for the flushes of all
// volumes of a thin pool.
package guestlvm
