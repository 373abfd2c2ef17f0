// Package ingress stands between the receivers that are not ours and the pipelines.
//
// Such a receiver hands on what others say. Nothing of it enters unmarked:
//
//   - Its resource says how far it is believed (tracecore.trust): claimed where the
//     receiver reads its own node, foreign where it listens to others.
//   - Names that only tracecore may use get the prefix "foreign.": the events of its
//     receivers and detectors, and the attributes tracecore.* and pattern.*.
//   - It speaks of one machine: the one that the sender proved to be (Agent), or else
//     the one that it was read on.
//
// An extension that checked a sender's credentials puts an Agent into the client's
// information. Records of an agent keep their trust and their names.
package ingress
