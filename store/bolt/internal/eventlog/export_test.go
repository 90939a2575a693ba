package eventlog

// SetIDsPerRun sets the minimum number of IDs in a run.
func (w *Writer) SetIDsPerRun(n int) { w.ids.perRun = n }

// IDsInMemory returns the number of IDs that are in no committed run.
func (w *Writer) IDsInMemory() int { return len(w.ids.newer.entries) + len(w.ids.writing.entries) }

// Key returns the key of the event's ID.
func (e *Event) Key() uint64 { return e.key }

// SetKey changes the key of the event's ID.
func (e *Event) SetKey(key uint64) { e.key = key }
