// Package volumes repeats Figs. 2 to 4 and 6 to 10 of paper 2: fio and databases beside a
// neighbour that syncs, with a shared journal and with a journal for each container.
package volumes
