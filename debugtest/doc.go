// Package debugtest tests the page of package debug in a real browser. It is
// tests only, in a module of its own so that what it needs stays out of the
// library's go.mod.
//
// What it needs beside Go modules, setup.sh installs. To take the pictures in
// docs/img anew:
//
//	go test -trimpath -run TestScreenshots -screenshots ../docs/img
package debugtest
