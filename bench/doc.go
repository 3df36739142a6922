// Package bench is the work that ration and what one would use instead are
// measured at, behind one small adapter each: [Cases] are all of it. The command
// compare runs them side by side, writes down what came out and draws it; see
// README.md for how, and results for the raw text.
package bench
