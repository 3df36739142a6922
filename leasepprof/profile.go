package leasepprof

import (
	"compress/gzip"
	"encoding/binary"
	"io"
	"runtime"
	"strconv"
	"time"

	"github.com/ration-go/ration"
)

// noStack is the function of leases without a stack.
const noStack = "(no stack recorded)"

// A profile collects what goes into a profile.proto message. Messages that are
// referred to are numbered from 1 in the order of their first use, and encoded
// at once.
type profile struct {
	samples, locations, functions message // fields of the whole, one after the other

	stacks      map[string][]uint64 // location ids by program counters: most leases share a few stacks
	locationIDs map[location]uint64
	functionIDs map[function]uint64
	strings     stringTable
}

type location struct {
	function uint64
	line     int
}

type function struct{ name, file string }

func (p *profile) add(lease ration.LeaseInfo) {
	var sample message
	sample.packed(sampleLocationID, p.stack(lease))
	sample.packed(sampleValue, []uint64{1, uint64(lease.Weight), uint64(lease.Age)})
	p.label(&sample, "pool", lease.Pool)
	p.label(&sample, "owner", lease.Owner)
	p.label(&sample, "id", strconv.FormatUint(lease.ID, 10)) // as a number, pprof would print it with a unit
	p.samples.message(profileSample, sample)
}

func (p *profile) label(sample *message, key, value string) {
	if value == "" {
		return
	}
	var label message
	label.number(labelKey, p.strings.index(key))
	label.number(labelStr, p.strings.index(value))
	sample.message(sampleLabel, label)
}

// stack returns the locations of the lease's stack, innermost first.
func (p *profile) stack(lease ration.LeaseInfo) []uint64 {
	var key []byte
	for _, pc := range lease.Stack {
		key = binary.NativeEndian.AppendUint64(key, uint64(pc))
	}
	if ids, ok := p.stacks[string(key)]; ok {
		return ids
	}
	var ids []uint64
	for _, frame := range borrower(lease.Frames()) {
		ids = append(ids, p.location(frame))
	}
	if p.stacks == nil {
		p.stacks = make(map[string][]uint64)
	}
	p.stacks[string(key)] = ids
	return ids
}

// borrower returns the frames that are worth showing: without the runtime's at
// the bottom, which is the same for everybody.
func borrower(frames []runtime.Frame) []runtime.Frame {
	if n := len(frames); n > 0 && frames[n-1].Function == "runtime.goexit" {
		frames = frames[:n-1]
	}
	if len(frames) == 0 {
		return []runtime.Frame{{Function: noStack}}
	}
	return frames
}

func (p *profile) location(frame runtime.Frame) uint64 {
	l := location{function: p.function(function{frame.Function, frame.File}), line: frame.Line}
	id, isNew := number(&p.locationIDs, l)
	if isNew {
		var line, m message
		line.number(lineFunctionID, l.function)
		line.number(lineLine, uint64(l.line))
		m.number(locationID, id)
		m.message(locationLine, line)
		p.locations.message(profileLocation, m)
	}
	return id
}

func (p *profile) function(f function) uint64 {
	id, isNew := number(&p.functionIDs, f)
	if isNew {
		var m message
		m.number(functionID, id)
		m.number(functionName, p.strings.index(f.name))
		m.number(functionSystemName, p.strings.index(f.name))
		m.number(functionFilename, p.strings.index(f.file))
		p.functions.message(profileFunction, m)
	}
	return id
}

// number returns the number of key, and whether it has been given just now.
func number[K comparable](ids *map[K]uint64, key K) (id uint64, isNew bool) {
	if *ids == nil {
		*ids = make(map[K]uint64)
	}
	id, known := (*ids)[key]
	if !known {
		id = uint64(len(*ids)) + 1
		(*ids)[key] = id
	}
	return id, !known
}

func (p *profile) write(w io.Writer, at time.Time) error {
	var whole message
	for _, t := range [][2]string{{"leases", "count"}, {"weight", "permits"}, {"age", "nanoseconds"}} {
		var valueType message
		valueType.number(valueTypeType, p.strings.index(t[0]))
		valueType.number(valueTypeUnit, p.strings.index(t[1]))
		whole.message(profileSampleType, valueType)
	}
	whole = append(whole, p.samples...)
	whole = append(whole, p.locations...)
	whole = append(whole, p.functions...)
	whole.number(profileTimeNanos, uint64(at.UnixNano()))
	whole.number(profileDefaultSampleType, p.strings.index("leases"))
	whole = append(whole, p.strings.encoded...) // last: all strings are in it now

	z := gzip.NewWriter(w)
	if _, err := z.Write(whole); err != nil {
		return err
	}
	return z.Close()
}
