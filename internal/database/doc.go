// Package database runs a private database server as the load of an experiment:
// MariaDB with sysbench's oltp_insert (paper 2, section 4.1), and PostgreSQL
// with pgbench. The server is in a cgroup and its data where the caller says;
// the client is outside the cgroup, and there is no network, only a unix socket.
//
// A server is started on a data directory that [Create] made and ends with
// [Server.Stop], or with this process. The figures are the clients' own.
package database
