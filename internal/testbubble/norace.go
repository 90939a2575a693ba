//go:build !race

package testbubble

// Raced reports whether the race detector is on. With it, a bubble has one thread and takes about
// ten times as long.
const Raced = false
