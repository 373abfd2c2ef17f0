// Package alertexporter tells people of root causes: it starts and resolves alerts of an
// Alertmanager, or posts to a webhook or a Slack channel.
package alertexporter

//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
