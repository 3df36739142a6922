//go:build race

package ration

const raceEnabled = true
