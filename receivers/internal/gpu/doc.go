// Package gpu is what the receivers of GPU telemetry share: they keep a helper
// program running, which alone loads the vendor's library (helper, monitor),
// remember the GPUs (cards), fold storms of faults and turn both into records
// and metrics under the same names, whichever library told them. The helper's
// side is package worker, what both say to each other package wire.
package gpu
