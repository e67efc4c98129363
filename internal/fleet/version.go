package fleet

// How far an agent may be ahead of its server. An agent is ahead after the restore of an old backup: by the
// generations that the backup lacks, and, if the clocks of two restores disagree, by epochs, which are the
// milliseconds of the restores. A version beyond these limits is a mistake or an attack, and following it would
// exhaust the numbers.
const (
	MaxGenerationLead = 1 << 24
	MaxEpochLead      = 1 << 32 // 49 days
)

// Plausible reports whether an agent may have v, if the server has issued known at most.
func (v Version) Plausible(known Version) bool {
	if v.Epoch < 0 || v.Generation < 0 {
		return false
	}
	return v.Epoch-known.Epoch <= MaxEpochLead && v.Generation-known.Generation <= MaxGenerationLead
}
