package control

import "context"

// Trim does the chores of housekeeping at once.
// KeptEvents is how many events a tenant keeps.
const KeptEvents = keptEvents

func (s *Service) Trim(ctx context.Context) { s.trim(ctx) }

// DoubtPollers is what happens when changes may have been missed.
func (s *Service) DoubtPollers() { s.polling.DoubtAll() }
