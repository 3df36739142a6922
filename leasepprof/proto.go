package leasepprof

import (
	"encoding/binary"
	"strings"
)

// Field numbers of pprof's profile.proto.
const (
	profileSampleType        = 1
	profileSample            = 2
	profileLocation          = 4
	profileFunction          = 5
	profileStringTable       = 6
	profileTimeNanos         = 9
	profileDefaultSampleType = 14

	valueTypeType = 1
	valueTypeUnit = 2

	sampleLocationID = 1
	sampleValue      = 2
	sampleLabel      = 3

	labelKey = 1
	labelStr = 2

	locationID   = 1
	locationLine = 4

	lineFunctionID = 1
	lineLine       = 2

	functionID         = 1
	functionName       = 2
	functionSystemName = 3
	functionFilename   = 4
)

// A message is a protocol buffer message in the making.
type message []byte

const (
	wireVarint = 0
	wireBytes  = 2
)

func (m *message) tag(field, wire uint64) { *m = binary.AppendUvarint(*m, field<<3|wire) }

// number appends an integer. Zero is what an absent field means, and is left out.
func (m *message) number(field, value uint64) {
	if value != 0 {
		m.tag(field, wireVarint)
		*m = binary.AppendUvarint(*m, value)
	}
}

func (m *message) text(field uint64, value string) {
	m.tag(field, wireBytes)
	*m = binary.AppendUvarint(*m, uint64(len(value)))
	*m = append(*m, value...)
}

func (m *message) message(field uint64, value message) { m.text(field, string(value)) }

func (m *message) packed(field uint64, values []uint64) {
	var list message
	for _, v := range values {
		list = binary.AppendUvarint(list, v)
	}
	m.message(field, list)
}

// A stringTable is the part of a profile that the others refer to for their
// text. The string at 0 is the empty one.
type stringTable struct {
	indexes map[string]uint64
	encoded message
}

func (t *stringTable) index(s string) uint64 {
	if t.indexes == nil {
		t.indexes = map[string]uint64{"": 0}
		t.encoded.text(profileStringTable, "")
	}
	i, known := t.indexes[s]
	if !known {
		i = uint64(len(t.indexes))
		t.indexes[s] = i
		// Not UTF-8 would make the whole profile unreadable to some.
		t.encoded.text(profileStringTable, strings.ToValidUTF8(s, "\uFFFD"))
	}
	return i
}
