package verdict

import "strconv"

// Number is n with its thousands apart: 1,024.
func Number[T int | int64 | uint64](n T) string {
	text := strconv.FormatInt(int64(n), 10) //nolint:gosec // counts
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
