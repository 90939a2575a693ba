//go:build race

package simulation_test

func init() { slowdown = 8 }
