package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/bench"
)

var figures = []string{"waits", "throughput", "fairness", "shrink", "leak"}

// TestCompare_FromMeasurementToPicture runs all of it, though not for long
// enough to mean anything.
func TestCompare_FromMeasurementToPicture(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	dir := t.TempDir()
	c := config{rounds: 6, slice: 500 * time.Microsecond,
		raw: filepath.Join(dir, "raw.txt"), images: filepath.Join(dir, "img"), doc: filepath.Join(dir, "doc.md")}
	require.NoError(t, os.WriteFile(c.doc, []byte("before\n<!-- compare -->\nold\n<!-- /compare -->\nafter\n"), 0o644))
	var out, progress bytes.Buffer
	require.NoError(t, run(t.Context(), c, &out, &progress))

	d, err := read(c.raw)
	require.NoError(t, err)
	for _, of := range bench.Cases() {
		times := d.values("ns/op", of.Kind, caseKeys(t, of.Name())...)
		require.Len(t, times, c.rounds, "%s", of.Name())
		for _, v := range times {
			require.Positive(t, v, "%s", of.Name())
		}
	}
	doc, err := os.ReadFile(c.doc)
	require.NoError(t, err)
	require.Equal(t, "before\n<!-- compare -->\n"+d.tables()+"<!-- /compare -->\nafter\n", string(doc))
	require.Equal(t, d.tables()+"\n", out.String())
	require.Contains(t, progress.String(), "left, now ")
	for _, name := range figures {
		requirePicture(t, filepath.Join(c.images, name))
	}
}

// caseKeys are the keys and values in the name of a case.
func caseKeys(t *testing.T, name string) (keys []string) {
	for _, part := range strings.Split(name, "/")[1:] {
		key, value, ok := strings.Cut(part, "=")
		require.True(t, ok, "%s", name)
		keys = append(keys, key, value)
	}
	return keys
}

func requirePicture(t *testing.T, file string) {
	f, err := os.Open(file + ".png")
	require.NoError(t, err)
	defer f.Close()
	picture, err := png.Decode(f)
	require.NoError(t, err)
	colours := make(map[any]bool)
	for x := range picture.Bounds().Dx() {
		for y := range picture.Bounds().Dy() {
			colours[picture.At(x, y)] = true
		}
	}
	require.Greater(t, len(colours), 20, "there is nothing on %s", file)

	svg, err := os.ReadFile(file + ".svg")
	require.NoError(t, err)
	for decoder := xml.NewDecoder(bytes.NewReader(svg)); ; {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
}

// TestCompare_WhatIsPublishedIsWhatWasMeasured shows that nobody has typed a
// figure or drawn a line.
func TestCompare_WhatIsPublishedIsWhatWasMeasured(t *testing.T) {
	d, err := read("../../results/compare.txt")
	require.NoError(t, err)
	doc, err := os.ReadFile("../../../docs/performance.md")
	require.NoError(t, err)
	require.Contains(t, string(doc), "<!-- compare -->\n"+d.tables()+"<!-- /compare -->")

	dir := t.TempDir()
	require.NoError(t, d.draw(dir))
	for _, name := range figures {
		want, err := os.ReadFile(filepath.Join(dir, name+".svg"))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join("../../../docs/img", name+".svg"))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s.svg", name)
		requirePicture(t, filepath.Join("../../../docs/img", name))
	}
}

func TestCompare_RatioTellsWhoIsFaster(t *testing.T) {
	theirs := []float64{10, 20, 10, 20, 10, 20, 10, 20}
	for _, test := range []struct {
		ours []float64
		want string
	}{
		{[]float64{5, 10, 5, 10, 5, 10, 5, 10}, "0.50 [0.50–0.50]"},
		{[]float64{20, 40, 20, 40, 20, 40, 20, 40}, "**2.00** [2.00–2.00]"},
		{[]float64{5, 40, 5, 40, 5, 40, 5, 40}, "≈ 1.25 [0.50–2.00]"},
		{[]float64{5}, "–"}, // not of the same rounds
		{nil, "–"},
	} {
		require.Equal(t, test.want, ratio(test.ours, theirs))
	}
}
