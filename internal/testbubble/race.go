//go:build race

package testbubble

// Raced reports that the race detector is on. A bubble then has one thread and takes about ten
// times as long.
const Raced = true
