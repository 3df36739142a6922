// Package bench measures the parts of ration beside what one would use instead.
// See README.md for how, and results for what came out.
package bench
