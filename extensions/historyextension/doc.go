// Package historyextension keeps what was concluded: incidents, with all revisions of
// their verdicts. It answers questions about them over HTTP.
package historyextension

//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
