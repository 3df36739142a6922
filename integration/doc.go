// Package integration tests pools of real things: SMTP sessions with an SMTP
// server, connections to a PostgreSQL server, and worker subprocesses. It is
// tests only, in a module of its own so that what it needs stays out of the
// library's go.mod.
//
// What it needs beside Go modules, setup.sh installs. The tests start their
// servers on free ports of the loopback interface and stop them.
package integration
