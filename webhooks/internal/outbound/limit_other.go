//go:build !unix

package outbound

func descriptors() uint64 { return unlimited }
