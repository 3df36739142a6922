package main

import (
	"os"
	"testing"
	"testing/synctest"
)

// inTwoBubbles runs a test in a synctest bubble, and again in another.
func inTwoBubbles(test func(*testing.T)) outcome {
	stdout := os.Stdout
	os.Stdout, _ = os.Open(os.DevNull) // where the outcome goes, not what the tests say
	defer func() { os.Stdout = stdout }()
	if !testing.Testing() {
		testing.Init()
	}
	ok := testing.RunTests(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{
		{Name: "first", F: func(t *testing.T) { synctest.Test(t, test) }},
		{Name: "second", F: func(t *testing.T) { synctest.Test(t, test) }},
	})
	if !ok {
		return no("the test fails")
	}
	return yes
}
