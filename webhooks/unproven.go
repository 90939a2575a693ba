package webhooks

// countUnproven counts so many flights more of the webhook as unproven.
func (p *pacer) countUnproven(w *track, n int) {
	if w.unproven += n; w.condition == fit {
		p.unproven.inFlight += n
	}
}

// unprovenRoom returns how many slots more unproven webhooks may have: half of all,
// or if slow ones have more than a quarter, what leaves a quarter of all, but an
// eighth at least.
func (p *pacer) unprovenRoom() int {
	return max(0, min(p.unproven.slots, max(1, p.slots/8, p.slots*3/4-p.troubled))-p.unproven.inFlight)
}

// boundUnproven says in a claim what unproven webhooks may have: firstCap each until
// they have half of their slots, and one each of the rest.
func (p *pacer) boundUnproven(claim *Claim) {
	room := p.unprovenRoom()
	if most := p.unproven.slots/2 - p.unproven.inFlight; most > 0 && most < room && !p.awaited {
		claim.MaxUnproven = most
		return
	}
	claim.MaxUnproven, claim.PerUnproven = room, 1
	if room == 0 {
		claim.MaxUnproven = -1
	}
}

// await notes whether unproven webhooks wait for slots that have none.
func (p *pacer) await(they bool) {
	p.awaited = they
	p.squeezed = p.squeezed || they && p.spare() < 0
}
