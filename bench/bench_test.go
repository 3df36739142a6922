package bench

import (
	"testing"
)

// The cases as Go benchmarks: all of them, to single one out, or to profile it.
// The command compare runs the same ones in rounds.

func BenchmarkSemaphore(b *testing.B)   { benchmark(b, "Semaphore") }
func BenchmarkPool(b *testing.B)        { benchmark(b, "Pool") }
func BenchmarkTokenBucket(b *testing.B) { benchmark(b, "TokenBucket") }
func BenchmarkFloor(b *testing.B)       { benchmark(b, "Floor") }

func benchmark(b *testing.B, kind string) {
	for _, c := range Cases() {
		if c.Kind != kind {
			continue
		}
		b.Run(c.Name()[len(kind)+1:], func(b *testing.B) {
			b.ReportAllocs()
			run := c.Start()
			b.ResetTimer()
			took := run.Do(b.N)
			b.StopTimer()
			b.ReportMetric(float64(took)/float64(b.N), "ns/op") // without the making of goroutines
			if err := run.Finish(); err != nil {
				b.Error(err)
			}
		})
	}
}
