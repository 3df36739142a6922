package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFindTheLeak_ClaimsHold(t *testing.T) {
	var out strings.Builder
	err := run(&out)
	require.NoError(t, err, "%s", &out)
}
