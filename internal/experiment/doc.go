// Package experiment has a folder for each family of experiments, which runs those of the
// papers again on real kernels:
//
//	attribution   Table 1 of paper 1, widened: bytes of the journal for each operation
//	shares        Figs. 2, 3, 5 and 6 of paper 1: shares of a disk, uncontrolled and controlled
//	guestshares   the same on cgroup v2, in guests
//	volumes       Figs. 2 to 4 and 6 to 10 of paper 2: a database beside a neighbour that syncs
//	guestvolumes  Fig. 8 of paper 2 on cgroup v2, in guests
//	ext4nvj       Figs. 4 and 5 of papers 3 and 4: ext4 with its journal in memory
//	nvjournal     the same journal without a file system
//	overhead      what the daemon costs the programs on the host
//	scale         what the daemon needs with many cgroups
//
// The families do not import each other. Below them are the parts that they share: a
// fixture (disks, file systems, cgroups), which is gone afterwards, also after a kill -9;
// a scenario of containers that share a disk; and what results become: statistics, report
// and verdict. What was measured is plain data; figures and tables are made from it.
package experiment
