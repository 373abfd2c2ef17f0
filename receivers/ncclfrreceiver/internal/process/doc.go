// Package process reads dumps in a process of its own. A dump is a file that anybody
// may have written: what it does to its reader, it does to a process without rights,
// files and network, with little memory and time, that nothing else waits for.
package process
