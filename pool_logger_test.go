package ration

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestPool_LoggerIsToldOfAFailedCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		p, err := NewPool(1, func(context.Context) (*int, error) { return new(int), nil }, &PoolOptions[*int]{
			Check:  func(context.Context, *int) error { return errors.New("no pulse") },
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		require.NoError(t, err)
		require.NoError(t, p.Warm(t.Context(), 1))
		l, err := p.Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Close())
		synctest.Wait()
		require.Contains(t, log.String(), "no pulse")
		require.NoError(t, p.Close(t.Context()))
		require.NoError(t, p.Audit())
	})
}

func TestPool_LoggerIsToldOfAResetThatFailsAfterDo(t *testing.T) {
	var log strings.Builder
	p, err := NewPool(1, func(context.Context) (*int, error) { return new(int), nil }, &PoolOptions[*int]{
		Reset:  func(*int) error { return errors.New("stained") },
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	require.NoError(t, p.Do(t.Context(), func(context.Context, *int) error { return nil }))
	require.Contains(t, log.String(), "stained")
	require.NoError(t, p.Close(t.Context()))
	require.NoError(t, p.Audit())
}
