// Package experiment has the experiments behind docs/results. They run on real kernels.
// Those of a paper repeat its tables and figures:
//
//	paper1/attribution         Table 1, with more operations: journal bytes of each operation
//	paper1/shares              Figs. 2, 3, 5 and 6: shares of a disk, uncontrolled and controlled
//	paper1/guestshares         the same on cgroup v2, in guests
//	paper2/volumes             Figs. 2 to 4 and 6 to 10: a database beside a neighbour that syncs
//	paper2/guestvolumes        Fig. 8 on cgroup v2, in guests
//	papers3and4/filesystems    Figs. 4 and 5 of both papers: ext4 and JFS with the journal in memory
//	papers3and4/nvjournal      the same journal without a file system
//	papers2to4/memoryvolumes   volumes with their journal in memory, next to neighbours
//	papers                     all tables and figures of the papers, with their commands
//
// The others are of no paper:
//
//	daemon/overhead            the cost of the daemon for the programs on the host
//	daemon/scale               the cost of the daemon with many cgroups
//	daemon/causes              whether blame finds injected causes of waits
//	daemon/advice              whether advise predicts what a volume gives
//	daemon/node                shares, syncs and the agent's cost on a Kubernetes node
//	daemon/shares              whether control holds the shares in each of many runs
//	guestlvm                   thin and thick logical volumes beside a neighbour
//
// They share these parts:
//
//	fixture      disks, file systems and cgroups; all are removed afterwards, also after a kill -9
//	scenario     containers that share a disk by weights
//	pair         a container's load beside its neighbour, in the arrangements of paper 2
//	native       a kernel that runs as a program of the host (User Mode Linux)
//	statistics   medians and their ranges
//	report       tables and pages
//	verdict      comparison of results with targets
//
// Measurements are plain data; figures and tables are generated from them.
package experiment
