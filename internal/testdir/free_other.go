//go:build !linux

package testdir

func free(string) int64 { return 0 }
