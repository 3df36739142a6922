package ration

import (
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"time"
)

// A LeaseInfo is a line of the lease table.
type LeaseInfo struct {
	Pool       string
	Owner      string // [AcquireOptions].Owner
	ID         uint64 // unique in the pool, later leases have larger ones
	Weight     int64  // permits held
	AcquiredAt time.Time
	Age        time.Duration // since the acquire or the last Touch
	Stack      []uintptr     // the borrower's call stack; nil unless a Detector had it recorded

	Near    bool // a Detector found it close to its threshold
	Suspect bool // a Detector suspects that it has been forgotten
	Proved  bool // the garbage collector has proved that it has been
}

// String is short: lease 4 of "leaky", held 350ms.
func (i LeaseInfo) String() string {
	if i.Owner == "" {
		return fmt.Sprintf("lease %d, held %v", i.ID, i.Age)
	}
	return fmt.Sprintf("lease %d of %q, held %v", i.ID, i.Owner, i.Age)
}

// LogValue makes a group of what is known about the lease.
func (i LeaseInfo) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 6)
	if i.Pool != "" {
		attrs = append(attrs, slog.String("pool", i.Pool))
	}
	attrs = append(attrs, slog.Uint64("id", i.ID))
	if i.Owner != "" {
		attrs = append(attrs, slog.String("owner", i.Owner))
	}
	attrs = append(attrs,
		slog.Int64("weight", i.Weight),
		slog.Time("acquired_at", i.AcquiredAt),
		slog.Duration("age", i.Age))
	return slog.GroupValue(attrs...)
}

// Frames resolves the stack, if one was recorded, from the call into this package
// on.
func (i LeaseInfo) Frames() []runtime.Frame {
	if len(i.Stack) == 0 {
		return nil
	}
	var frames []runtime.Frame
	for it := runtime.CallersFrames(i.Stack); ; {
		frame, more := it.Next()
		if len(frames) > 0 || !isOurs(frame) {
			frames = append(frames, frame)
		}
		if !more {
			return frames
		}
	}
}

var ourPackage = reflect.TypeFor[Detector]().PkgPath() + "."

func isOurs(f runtime.Frame) bool {
	return strings.HasPrefix(f.Function, ourPackage) && !strings.HasSuffix(f.File, "_test.go")
}
