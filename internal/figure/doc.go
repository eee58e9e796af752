// Package figure draws what Daybook measured: the figures of paper 1 (I/O over
// time, Figs. 2 and 5; cumulative frequency of the shares, Figs. 3 and 6), the
// kinds of each container's bytes, the weights, the accuracy of the estimators,
// the cost of the daemon, and a report page with them.
//
// Everything is a function of values: [account.Sample]s are the input, SVG or
// HTML is the output. The package measures nothing and reads no file. The same
// input gives the same bytes, without a date, so that stored results can be
// compared as text. Container names are untrusted input and are escaped.
//
// The figures name fonts with a generic one at the end and leave space for
// wider ones, so that they stay readable where Liberation Sans is missing.
package figure
