// Package experiment runs the papers' experiments again, on real kernels: the
// shares of paper 1, Figs. 2, 3, 5 and 6 (shares.go), the accuracy of the
// attribution, paper 1's Table 1 widened (attribution.go), and what the
// attribution costs (overhead.go).
//
// An experiment stands on a Stage: a disk of its own, an ext4 on it and
// cgroups, all of which are gone afterwards, also after a kill -9. What was
// measured is plain data; figures and tables are made from it elsewhere.
package experiment
