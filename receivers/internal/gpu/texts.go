package gpu

// Text is an attribute that is there when its value is known; O is what mdatagen
// calls an option of a metric.
type Text[O any] struct {
	Value string
	With  func(string) O
}

// Texts are the options of those that are known.
func Texts[O any](texts ...Text[O]) []O {
	var options []O
	for _, text := range texts {
		if text.Value != "" {
			options = append(options, text.With(text.Value))
		}
	}
	return options
}
