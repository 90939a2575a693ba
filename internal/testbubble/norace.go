//go:build !race

package testbubble

const raceEnabled = false
