package fleet

// How far an agent may be ahead of its server. It is ahead after an old backup was restored: by the
// generations that the backup lacks, and by epochs, which are the milliseconds at which backups were restored, if
// the clocks of two restores disagree. A claim beyond these bounds is a mistake or an attack, and following it
// would exhaust the numbers.
const (
	MaxGenerationLead = 1 << 24
	MaxEpochLead      = 1 << 32 // 49 days
)

// Plausible reports whether an agent may hold v of a target of which the server has given out known at most.
func (v Version) Plausible(known Version) bool {
	if v.Epoch < 0 || v.Generation < 0 {
		return false
	}
	return v.Epoch-known.Epoch <= MaxEpochLead && v.Generation-known.Generation <= MaxGenerationLead
}
