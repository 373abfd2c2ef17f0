package archive

import (
	"strings"
)

// compareVersions orders two Debian versions (deb-version(7)): epoch, upstream
// version, revision; below zero when a is older.
func compareVersions(a, b string) int {
	epochA, upstreamA, revisionA := splitVersion(a)
	epochB, upstreamB, revisionB := splitVersion(b)
	for _, pair := range [][2]string{{epochA, epochB}, {upstreamA, upstreamB}, {revisionA, revisionB}} {
		if c := comparePart(pair[0], pair[1]); c != 0 {
			return c
		}
	}
	return 0
}

func splitVersion(v string) (epoch, upstream, revision string) {
	if before, after, ok := strings.Cut(v, ":"); ok {
		epoch, v = before, after
	}
	if i := strings.LastIndexByte(v, '-'); i >= 0 {
		return epoch, v[:i], v[i+1:]
	}
	return epoch, v, ""
}

// comparePart compares runs of non-digits by Debian's letter order and runs of
// digits by value, in turn.
func comparePart(a, b string) int {
	for a != "" || b != "" {
		for startsText(a) || startsText(b) {
			if c := letterOrder(a) - letterOrder(b); c != 0 {
				return c
			}
			a, b = rest(a), rest(b)
		}
		numberA, tailA := leadingNumber(a)
		numberB, tailB := leadingNumber(b)
		if len(numberA) != len(numberB) {
			return len(numberA) - len(numberB)
		}
		if c := strings.Compare(numberA, numberB); c != 0 {
			return c
		}
		a, b = tailA, tailB
	}
	return 0
}

func startsText(s string) bool { return s != "" && (s[0] < '0' || s[0] > '9') }

// letterOrder: ~ sorts before the end, the end before letters, letters before the rest.
func letterOrder(s string) int {
	switch {
	case s == "" || !startsText(s):
		return 0
	case s[0] == '~':
		return -1
	case s[0] >= 'a' && s[0] <= 'z' || s[0] >= 'A' && s[0] <= 'Z':
		return int(s[0])
	default:
		return int(s[0]) + 256
	}
}

func rest(s string) string {
	if startsText(s) {
		return s[1:]
	}
	return s
}

// leadingNumber returns the leading digits without leading zeros, and the tail.
func leadingNumber(s string) (number, tail string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return strings.TrimLeft(s[:i], "0"), s[i:]
}
