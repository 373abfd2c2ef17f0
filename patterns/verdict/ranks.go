package verdict

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Ranks are ranks, sorted, each once. On a record and in JSON they are ranges,
// "0-516,518-1023": as numbers those of a job of 16,384 ranks take 100 kB.
type Ranks []int

// MaxRanksBytes is how long ranges are at most: ranks of which no two follow one another.
const MaxRanksBytes = MaxRanks * len("2147483647,")

// String is the ranks as ranges.
func (r Ranks) String() string {
	var b strings.Builder
	for i := 0; i < len(r); {
		end := i
		for end+1 < len(r) && r[end+1] == r[end]+1 {
			end++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(r[i]))
		if end > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(r[end]))
		}
		i = end + 1
	}
	return b.String()
}

// MarshalJSON implements json.Marshaler.
func (r Ranks) MarshalJSON() ([]byte, error) { return json.Marshal(r.String()) }

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
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := rankIn(first)
		to := from
		if err == nil && isRange {
			to, err = rankIn(last)
		}
		switch {
		case err != nil:
			return nil, err
		case to < from, len(ranks) > 0 && from <= ranks[len(ranks)-1]:
			return nil, fmt.Errorf("ranks %.40q do not ascend", part)
		case len(ranks)+to-from+1 > MaxRanks:
			return nil, fmt.Errorf("more than %d ranks", MaxRanks)
		}
		ranks = slices.Grow(ranks, to-from+1)
		for rank := from; rank <= to; rank++ {
			ranks = append(ranks, rank)
		}
	}
	return ranks, nil
}

func rankIn(text string) (int, error) {
	rank, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%.40q is no rank", text)
	}
	return int(rank), nil
}
