package control

import (
	"time"
)

func (s *planner) keepRevisions() int { return s.cfg.KeepRevisions }

func (s *planner) runTimeout() time.Duration { return s.cfg.RunTimeout }
