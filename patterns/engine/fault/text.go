package fault

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Tuple joins the values at positions; it is incomplete when one is unknown. A
// byte that no value has separates them.
func Tuple(values []string, positions []int) (string, bool) {
	if len(positions) == 1 {
		v := values[positions[0]]
		return v, v != ""
	}
	var b strings.Builder
	for i, at := range positions {
		if values[at] == "" {
			return "", false
		}
		if i > 0 {
			b.WriteByte(0)
		}
		b.WriteString(values[at])
	}
	return b.String(), true
}

// identifier is a short hash of parts.
func identifier(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// MaxRanks bounds a blast radius: more ranks than any job has.
const MaxRanks = 1 << 17

// ParseRank reads a rank: a number from 0 to 2^31-1 without sign.
func ParseRank(text string) (int, bool) {
	if text == "" || len(text) > 10 {
		return 0, false
	}
	n := 0
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, n <= 1<<31-1
}
