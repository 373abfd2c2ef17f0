package otlpscan

// Costs of JSON, in bytes. An object can be any message, so it costs what the largest
// does; what begins after a comma has a place in a slice that doubles.
const (
	perObject = 384
	perArray  = 48
	perComma  = 64
	perString = 32
)

// maxJSONDepth is MaxNesting in brackets: every level is an object, its list object,
// an array and a pair, below those of request, resource, scope, record and attribute.
const maxJSONDepth = 12 + 4*(MaxNesting+1)

// JSON is Proto for a message in JSON, of any signal. It does not look whether the
// brackets match: a decoder stops where they do not.
func JSON(body []byte, maxCost int64) (int64, error) {
	depth, cost := 0, int64(0)
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			end := endOfString(body, i+1)
			if end-i-1 > MaxValue { // as it is written: escapes count
				return cost, ErrTooLong
			}
			cost += perString + int64(end-i)
			i = end
		case '{':
			depth++
			cost += perObject
		case '[':
			depth++
			cost += perArray
		case '}', ']':
			depth--
		case ',':
			cost += perComma
		}
		if depth > maxJSONDepth {
			return cost, ErrTooDeep
		}
		if cost > maxCost {
			return cost, ErrTooCostly
		}
	}
	return cost, nil
}

// endOfString is the position of the quote that ends the string, or of the end.
func endOfString(body []byte, i int) int {
	for ; i < len(body); i++ {
		switch body[i] {
		case '"':
			return i
		case '\\':
			i++
		}
	}
	return len(body)
}
