//go:build !race

package ration

// Under the race detector sync.Pool drops items at random and everything is
// many times slower, so allocations are not counted and rounds are fewer.
const raceEnabled = false
