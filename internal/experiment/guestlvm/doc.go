// Package guestlvm compares thin and thick logical volumes beside a busy neighbour, in a
// guest. No paper measures this: dm-thin has one worker for the flushes of all volumes of
// a thin pool.
package guestlvm
