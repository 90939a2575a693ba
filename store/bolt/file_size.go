package bolt

// FileSize returns how many bytes the file has, and how many of them are
// in pages that are free, as of the last commit. It takes about a microsecond; 0 and 0 once the
// store is closed.
func (s *Store) FileSize() (bytes, free int64) {
	info, err := s.file.Stat()
	if err != nil {
		return 0, 0
	}
	return info.Size(), s.parking.freeBytes()
}
