package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain is also the process in which a single check runs.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "-check" {
		fmt.Println(runHere(os.Args[2]))
		return
	}
	os.Exit(m.Run())
}

// A check knows what takes long by the clock, and takes a machine that stands
// still for a library that does. So there are three attempts.
func TestBehaviours_WhatIsPublishedIsWhatHappens(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	doc, err := os.ReadFile("../../../docs/behaviours.md")
	require.NoError(t, err)
	var found cells
	for range 3 {
		found, err = runAll(t.Context(), []string{self, "-check"}, io.Discard)
		require.NoError(t, err)
		if strings.Contains(string(doc), found.tables()) {
			break
		}
	}
	for id, outcome := range found {
		if _, impl, _ := strings.Cut(id[strings.Index(id, "/")+1:], "/"); strings.HasPrefix(impl, "ration") {
			require.Equal(t, yes, outcome, "%s", id)
		}
	}
	require.Contains(t, string(doc), found.tables())
	readme, err := os.ReadFile("../../../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "<!-- behaviours -->\n"+found.tables()+"<!-- /behaviours -->")
}

// Most checks are seen to fail at one of the rivals. The others are shown
// something that is wrong on purpose.

type wrongSemaphore struct{ rationSemaphore }

func (w wrongSemaphore) resize(int) {}
func (w wrongSemaphore) close()     {}

func (w wrongSemaphore) acquire(ctx context.Context, n int) error {
	if !w.tryAcquire() {
		return errors.Join(w.rationSemaphore.acquire(ctx, n), errors.New("it had to wait"))
	}
	return nil
}

type wrongPool struct{ rationPool }

type wrongLease struct{ rationLease }

func (w wrongPool) resize(int) {}

func (w wrongPool) acquire(ctx context.Context) (lease, error) {
	if st := w.p.Stats(); st.Leased > 0 && ctx.Err() == nil {
		l, err := w.rationPool.acquire(ctx)
		return l, errors.Join(err, errors.New("it had to wait"))
	}
	l, err := w.rationPool.acquire(ctx)
	if err != nil {
		return nil, err
	}
	return wrongLease{l.(rationLease)}, nil
}

func (w wrongLease) discard() { w.close() }

type wrongBucket struct{ rationBucket }

// wait takes its token whether it waits for it or not.
func (w wrongBucket) wait(ctx context.Context) error {
	r := w.b.Reserve(1)
	select {
	case <-time.After(r.Delay()):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestBehaviours_ChecksCanFail(t *testing.T) {
	semaphores := func(permits int) semaphore {
		return wrongSemaphore{newSemaphore("ration", permits).(rationSemaphore)}
	}
	pools := func(size int, open opener) pool { return wrongPool{newPool("ration", size, open).(rationPool)} }
	buckets := func(every time.Duration, burst int) bucket {
		return wrongBucket{newBucket("ration", every, burst).(rationBucket)}
	}
	for name, outcome := range map[string]outcome{
		"semaphore/shrink":  shrink(semaphores),
		"semaphore/bubbles": semaphoreBubbles(semaphores),
		"pool/broken":       broken(pools),
		"pool/shrink":       shrinkPool(pools),
		"pool/given-up":     givenUp(func(size int, _ opener) pool { return pools(size, neverOpens) }),
		"bucket/give-up":    giveUpWait(buckets),
	} {
		require.True(t, strings.HasPrefix(string(outcome), "no: "), "%s: %s", name, outcome)
	}
	require.Equal(t, no("there is no check %q", "semaphore/none/ration"), runHere("semaphore/none/ration"))
}

func neverOpens(ctx context.Context) (*thing, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestBehaviours_ACrashAndAHangAreOutcomes(t *testing.T) {
	require.Equal(t, no("crashes the program"), runThere(t.Context(), []string{"false"}, "id"))
	require.Equal(t, no("says %q", "id"), runThere(t.Context(), []string{"echo"}, "id"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, no("hangs"), runThere(ended, []string{"sleep"}, "60"))
}
