package verdict

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Ranks are ranks, sorted, each once. On a record and in JSON they are ranges,
// "0-516,518-1023": as numbers those of a job of 16,384 ranks take 100 kB. Of ranks that
// are scattered, each a range of its own, the first are written, and a bit for each (wire.go).
type Ranks []int

// MaxRangesBytes is how long ranges are at most on a record, in JSON and in views.
const MaxRangesBytes = 1024

// String is the ranks as ranges, all of them.
func (r Ranks) String() string {
	text, _ := r.First(math.MaxInt)
	return text
}

// First is the first ranges, as many as fit into so many bytes, and how many ranks are in
// none of these.
func (r Ranks) First(most int) (ranges string, more int) {
	var b []byte
	for i := 0; i < len(r); {
		end, before := i, len(b)
		for end+1 < len(r) && r[end+1] == r[end]+1 {
			end++
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(r[i]), 10)
		if end > i {
			b = strconv.AppendInt(append(b, '-'), int64(r[end]), 10)
		}
		if len(b) > most {
			return string(b[:before]), len(r) - i
		}
		i = end + 1
	}
	return string(b), 0
}

// Brief is the ranks as ranges of at most MaxRangesBytes: "0,2,4 and 8,189 more ranks" where
// there are more.
func (r Ranks) Brief() string { return Brief(r.First(MaxRangesBytes)) }

// Brief says how many ranks there are beside those of the first ranges.
func Brief(ranges string, more int) string {
	switch more {
	case 0:
		return ranges
	case 1:
		return ranges + " and 1 more rank"
	}
	return ranges + " and " + Number(more) + " more ranks"
}

// MarshalJSON implements json.Marshaler: the first ranges. A verdict has the others beside them.
func (r Ranks) MarshalJSON() ([]byte, error) {
	ranges, _ := r.First(MaxRangesBytes)
	return json.Marshal(ranges)
}

// UnmarshalJSON reads ranges, or the list of numbers that they were before. It refuses more
// than MaxRanks before it makes room for them.
func (r *Ranks) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, (*[]int)(r))
	}
	var text *string
	if err := json.Unmarshal(data, &text); err != nil || text == nil {
		return err
	}
	ranks, err := ParseRanks(*text)
	*r = ranks
	return err
}

// ParseRanks reads ranges. They ascend.
func ParseRanks(text string) (Ranks, error) {
	var ranks Ranks
	err := eachRange(text, func(from, to, _ int) error {
		if len(ranks)+to-from+1 > MaxRanks {
			return fmt.Errorf("more than %d ranks", MaxRanks)
		}
		ranks = slices.Grow(ranks, to-from+1)
		for rank := from; rank <= to; rank++ {
			ranks = append(ranks, rank)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ranks, nil
}

// Cut leaves of ranges the first, as many as fit into MaxRangesBytes, and says how many ranks
// are in these and in the others. It unfolds none: a range of any length will do.
func Cut(text string) (first string, listed, more int, err error) {
	fits := 0
	err = eachRange(text, func(from, to, end int) error {
		if end > MaxRangesBytes {
			more += to - from + 1
			return nil
		}
		listed, fits = listed+to-from+1, end
		return nil
	})
	if err != nil {
		return "", 0, 0, err
	}
	return text[:fits], listed, more, nil
}

// eachRange calls visit with each range of ranges, and where in the text it ends.
func eachRange(text string, visit func(from, to, end int) error) error {
	if text == "" {
		return nil
	}
	last, end := -1, -1
	for part := range strings.SplitSeq(text, ",") {
		end += len(part) + 1
		first, until, isRange := strings.Cut(part, "-")
		from, err := rankIn(first)
		to := from
		if err == nil && isRange {
			to, err = rankIn(until)
		}
		switch {
		case err != nil:
			return err
		case to < from, from <= last:
			return fmt.Errorf("ranks %.40q do not ascend", part)
		}
		if err := visit(from, to, end); err != nil {
			return err
		}
		last = to
	}
	return nil
}

func rankIn(text string) (int, error) {
	rank, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%.40q is no rank", text)
	}
	return int(rank), nil
}
