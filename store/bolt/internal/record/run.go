package record

// EncodeRun encodes ascending numbers as deltas. They must lie in the run that begins at run.
func EncodeRun(run uint64, numbers []uint64) []byte {
	e := newEncoder(2 * len(numbers))
	for _, n := range numbers {
		e.uint(n - run)
		run = n
	}
	return e
}

// DecodeRun decodes the numbers of the run that begins at run. A nil record has no numbers.
func DecodeRun(run uint64, record []byte) (numbers []uint64, err error) {
	if record == nil {
		return nil, nil
	}
	d := newDecoder(record)
	for len(d.rest) > 0 && !d.failed {
		run += d.uint()
		numbers = append(numbers, run)
	}
	return numbers, d.err()
}
