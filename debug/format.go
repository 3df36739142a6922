package debug

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// How numbers are shown to people.

// number writes an integer with commas: 12,345.
func number(v any) string {
	s := fmt.Sprint(v)
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "−", s[1:] // as wide as a digit, and not broken at
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// duration writes a time in two units or three digits: 3h 05m, 12m 03s, 4.20 s.
func duration(s seconds) string {
	d := time.Duration(s)
	switch {
	case d < 0:
		return "−" + duration(-s)
	case d == 0:
		return "0"
	case d >= 24*time.Hour:
		return fmt.Sprintf("%sd %02dh", number(int64(d/(24*time.Hour))), d/time.Hour%24)
	case d >= time.Hour:
		return fmt.Sprintf("%dh %02dm", d/time.Hour, d/time.Minute%60)
	case d >= time.Minute:
		return fmt.Sprintf("%dm %02ds", d/time.Minute, d/time.Second%60)
	case d >= time.Second:
		return digits(d, time.Second, "s")
	case d >= time.Millisecond:
		return digits(d, time.Millisecond, "ms")
	default:
		return digits(d, time.Microsecond, "µs")
	}
}

// digits writes d in a unit with three digits, cut and not rounded, so that it
// never says 1000 ms.
func digits(d, unit time.Duration, name string) string {
	decimals, scale := 2, time.Duration(100)
	switch {
	case d >= 100*unit:
		decimals, scale = 0, 1
	case d >= 10*unit:
		decimals, scale = 1, 10
	}
	cut := float64(d/(unit/scale)) / float64(scale)
	return strconv.FormatFloat(cut, 'f', decimals, 64) + "\u00a0" + name
}

// perSecond writes how often something has happened.
func perSecond(n uint64, over time.Duration) string {
	if over <= 0 {
		return "–"
	}
	rate := float64(n) / over.Seconds()
	switch {
	case rate == 0:
		return "0/s"
	case rate < 10:
		return strconv.FormatFloat(rate, 'f', 2, 64) + "/s"
	case rate < 100:
		return strconv.FormatFloat(rate, 'f', 1, 64) + "/s"
	}
	return number(int64(rate)) + "/s"
}

// shortFunction is a function's name without the path of its package.
func shortFunction(name string) string {
	return name[strings.LastIndexByte(name, '/')+1:]
}

// shortFile is the last part of a file's path.
func shortFile(path string) string {
	return path[strings.LastIndexByte(path, '/')+1:]
}
