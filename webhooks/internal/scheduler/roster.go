package scheduler

import "maps"

// A roster is a map that shrinks once most of its entries are deleted, unlike Go's maps.
type roster[T any] struct {
	all  map[string]T
	most int // maximum length since the map all was allocated
}

// minShrunk is the smallest maximum length that makes shrinking worthwhile.
const minShrunk = 1024

func (r *roster[T]) put(key string, value T) {
	if r.all == nil {
		r.all = make(map[string]T)
	}
	r.all[key] = value
	r.most = max(r.most, len(r.all))
}

func (r *roster[T]) delete(key string) {
	delete(r.all, key)
	if r.most < minShrunk || len(r.all) > r.most/8 {
		return
	}
	left := make(map[string]T, len(r.all))
	maps.Copy(left, r.all)
	r.all, r.most = left, len(left)
}
