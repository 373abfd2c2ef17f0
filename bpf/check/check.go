// Package check says what this machine allows: facts about the kernel and the
// process, and for each probe the rung it got, seen to fire.
package check
