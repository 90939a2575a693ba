//go:build !race

package testbubble

// Raced tells that the race detector is on: a bubble has one thread then, and takes some ten
// times as long.
const Raced = false
