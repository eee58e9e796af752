// Package figure draws what Daybook measured: the pictures of paper 1 (I/O over
// time, Figs. 2 and 5; cumulative frequency of the shares, Figs. 3 and 6), what
// each container's bytes consist of, the weights, the accuracy of the
// estimators, the cost of the daemon, and a report page around them.
//
// Everything is a function of values: [account.Sample]s go in, SVG or HTML
// comes out. Nothing is measured here, no file is read, and the same input
// gives the same bytes, with no date inside, so that kept results can be
// compared as text. Names of containers come from strangers and are escaped.
//
// The pictures name fonts with a generic one at the end and leave room for
// wider ones, so that they stay readable where Liberation Sans is missing.
package figure
