package verdict

import "strconv"

// Number is n with its thousands apart: 1,024. So every text and every view writes how many
// there are of something.
func Number[T int | int64 | uint64](n T) string {
	text := strconv.FormatInt(int64(n), 10) //nolint:gosec // counts
	if n < 0 {
		return "-" + Thousands(text[1:])
	}
	return Thousands(text)
}

// All says that all of these, two or more, are meant: both ranks, all 1,023 ranks.
func All(n int, what string) string {
	if n == 2 {
		return "both " + what
	}
	return "all " + Number(n) + " " + what
}

// Thousands puts commas into the digits of a whole number.
func Thousands(digits string) string {
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
