// Package database runs a private database server as the load of an experiment:
// MariaDB with sysbench's oltp_insert (paper 2, section 4.1), and PostgreSQL
// with pgbench. The caller chooses the server's cgroup and data directory. The
// client is outside the cgroup and connects through a unix socket, without a
// network.
//
// A server is started on a data directory that [Create] made. It ends with
// [Server.Stop], or with this process. The figures are those that the clients
// print.
package database
