package rollout

import (
	"time"
)

func (s *Planner) keepRevisions() int { return s.cfg.KeepRevisions }

func (s *Planner) runTimeout() time.Duration { return s.cfg.RunTimeout }
